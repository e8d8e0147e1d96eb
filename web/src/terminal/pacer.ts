/**
 * Shares the page's time among screens that have much to draw: one piece at a time, in turn, and together no more
 * than a part of every frame, so that a flood never keeps the page from a person's keys.
 */

/** Draws something and calls `done` when that is over. */
export type Work = (done: () => void) => void;

export interface Frames {
  now(): number;
  /** Settles when the next frame was shown. */
  next(): Promise<void>;
}

/** Milliseconds of each frame that drawing may take. */
export const BUDGET_MS = 8;

export class Pacer {
  readonly #frames: Frames;
  readonly #waiting: Work[] = [];
  #running = false;
  #until = -Infinity;

  constructor(frames: Frames) {
    this.#frames = frames;
  }

  /** Does it when its turn has come. */
  pace(work: Work): void {
    this.#waiting.push(work);
    if (this.#running) return;
    this.#running = true;
    void this.#run();
  }

  async #run(): Promise<void> {
    for (let work = this.#waiting.shift(); work; work = this.#waiting.shift()) {
      if (this.#frames.now() >= this.#until) {
        await this.#frames.next();
        this.#until = this.#frames.now() + BUDGET_MS;
      }
      await new Promise<void>(work);
    }
    this.#running = false;
  }
}

/** The frames of this page. A page that is not shown has none, so a clock stands in. */
const pageFrames: Frames = {
  now: () => performance.now(),
  next: () =>
    new Promise((resolve) => {
      let over = false;
      const settle = (): void => {
        if (over) return;
        over = true;
        clearTimeout(late);
        // After the frame's own painting.
        setTimeout(resolve, 0);
      };
      const late = setTimeout(settle, 100);
      requestAnimationFrame(settle);
    }),
};

export const pacer = new Pacer(pageFrames);

/** Settles when the next frame was painted. */
export const nextFrame = (): Promise<void> => pageFrames.next();
