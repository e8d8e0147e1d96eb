/** Lists, page by page or item by item. */

import type { Page } from "./types.js";

/**
 * A list. `await` returns one page of it, `for await` yields the items of that page and of all that follow.
 *
 * @example
 * ```ts
 * const page = await client.threads.list({ limit: 10 });
 * for await (const thread of client.threads.list()) console.log(thread.threadId);
 * ```
 */
export class Listing<T> implements Promise<Page<T>>, AsyncIterable<T> {
  readonly [Symbol.toStringTag] = "Listing";
  readonly #load: (cursor: string | undefined) => Promise<Page<T>>;
  readonly #cursor: string | undefined;
  #first: Promise<Page<T>> | undefined;

  /**
   * @internal
   * @param cursor the `nextCursor` of the page before the first one
   */
  constructor(cursor: string | undefined, load: (cursor: string | undefined) => Promise<Page<T>>) {
    this.#cursor = cursor;
    this.#load = load;
  }

  // biome-ignore lint/suspicious/noThenProperty: a list can be awaited
  then<A = Page<T>, B = never>(
    fulfilled?: ((page: Page<T>) => A | PromiseLike<A>) | null,
    rejected?: ((reason: unknown) => B | PromiseLike<B>) | null,
  ): Promise<A | B> {
    return this.#page().then(fulfilled, rejected);
  }

  catch<B = never>(rejected?: ((reason: unknown) => B | PromiseLike<B>) | null): Promise<Page<T> | B> {
    return this.#page().catch(rejected);
  }

  finally(settled?: (() => void) | null): Promise<Page<T>> {
    return this.#page().finally(settled);
  }

  async *[Symbol.asyncIterator](): AsyncGenerator<T, void, undefined> {
    let page = await this.#page();
    for (;;) {
      yield* page.items;
      if (!page.nextCursor) return;
      page = await this.#load(page.nextCursor);
    }
  }

  /** The first page, which is requested once. An invalid argument is a rejection, too. */
  #page(): Promise<Page<T>> {
    this.#first ??= (async () => this.#load(this.#cursor))();
    return this.#first;
  }
}
