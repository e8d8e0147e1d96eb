/** Unsaved texts of files, kept while the page is open: leaving a file loses nothing. */

export interface Draft {
  text: string;
  /** The entity tag of the version that was edited. */
  etag: string | null;
}

const drafts = new Map<string, Draft>();
const key = (thread: string, path: string): string => JSON.stringify([thread, path]);

export const draftOf = (thread: string, path: string): Draft | undefined => drafts.get(key(thread, path));

/** Keeps an unsaved text; undefined when it was saved or discarded. */
export function keepDraft(thread: string, path: string, draft: Draft | undefined): void {
  if (draft) drafts.set(key(thread, path), draft);
  else drafts.delete(key(thread, path));
}

export const hasDrafts = (): boolean => drafts.size > 0;
