/**
 * Shares the main thread among screens with much to draw: one write at a time, in turn, and together only a
 * part of every frame, so that the page stays responsive under a flood of output.
 */

/** Draws something and calls `done` when it is drawn. */
export type Work = (done: () => void) => void;

export interface Frames {
  now(): number;
  /** Settles after the next frame. */
  next(): Promise<void>;
}

/** Milliseconds of each frame for drawing. */
export const FRAME_BUDGET_MS = 8;

export class Pacer {
  readonly #frames: Frames;
  readonly #waiting: Work[] = [];
  #running = false;
  #until = -Infinity;

  constructor(frames: Frames) {
    this.#frames = frames;
  }

  /** Runs `work` in its turn. */
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
        this.#until = this.#frames.now() + FRAME_BUDGET_MS;
      }
      await new Promise<void>(work);
    }
    this.#running = false;
  }
}

/** The frames of this page. A hidden page has none, so a timer replaces them. */
const pageFrames: Frames = {
  now: () => performance.now(),
  next: () =>
    new Promise((resolve) => {
      let settled = false;
      const settle = (): void => {
        if (settled) return;
        settled = true;
        clearTimeout(late);
        // After the frame has been painted.
        setTimeout(resolve, 0);
      };
      const late = setTimeout(settle, 100);
      requestAnimationFrame(settle);
    }),
};

export const pacer = new Pacer(pageFrames);

/** Settles when the next frame was painted. */
export const nextFrame = (): Promise<void> => pageFrames.next();
