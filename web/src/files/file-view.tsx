/** One file: its text in an editor, an image, a PDF, or the reason why it is not shown. */

import { useEffect, useRef, useState } from "preact/hooks";
import { describe, Problem } from "../api/client.ts";
import { fileAddress, readFile, statFile, writeFile } from "../api/files.ts";
import type { FileEntry } from "../api/types.ts";
import { draftOf, keepDraft } from "../lib/drafts.ts";
import { extensionOf, imageType, nameOf, textOf } from "../lib/file-tree.ts";
import { bytes } from "../lib/time.ts";
import { ask, toast } from "../ui/dialogs.tsx";
import { Icon } from "../ui/icons.tsx";
import { Ago, Badge, Button, Failure, Menu, type MenuItem } from "../ui/parts.tsx";
import type { Editor } from "./editor.ts";

const MAX_TEXT_BYTES = 2 << 20;
/** Of an image or a PDF. */
const MAX_VIEWED_BYTES = 16 << 20;

type Content =
  | { kind: "text"; text: string; etag: string | null }
  | { kind: "image"; source: string }
  | { kind: "pdf"; content: Uint8Array }
  | { kind: "other"; why: string };

interface Loaded {
  entry: FileEntry;
  content: Content;
}

async function load(thread: string, path: string): Promise<Loaded> {
  const entry = await statFile(thread, path);
  const other = (why: string): Loaded => ({ entry, content: { kind: "other", why } });
  if (entry.type === "other") return other("This is not a regular file.");
  const type = imageType(entry.name);
  const isPdf = extensionOf(entry.name) === "pdf";
  const limit = type || isPdf ? MAX_VIEWED_BYTES : MAX_TEXT_BYTES;
  if (entry.size > limit) return other(`Files over ${bytes(limit)} are not shown. Download it instead.`);
  const { bytes: content, etag } = await readFile(thread, path);
  if (type) return { entry, content: { kind: "image", source: await dataAddress(content, type) } };
  if (isPdf) return { entry, content: { kind: "pdf", content } };
  const text = textOf(content);
  return text === null
    ? other("This file is not text. Download it instead.")
    : { entry, content: { kind: "text", text, etag } };
}

/** The bytes as an address: the policy allows images from there, and scripts in an image never run. */
const dataAddress = (content: Uint8Array, type: string): Promise<string> =>
  new Promise((resolve, reject) => {
    const reader = new FileReader();
    reader.onload = () => resolve(String(reader.result));
    reader.onerror = () => reject(reader.error);
    reader.readAsDataURL(new Blob([content.slice().buffer], { type }));
  });

interface Props {
  thread: string;
  path: string;
  /** Rises when the file may have changed. */
  changes: number;
  actions: (entry: FileEntry) => MenuItem[];
  onSaved: () => void;
  onClose: () => void;
}

export function FileView({ thread, path, changes, actions, onSaved, onClose }: Props) {
  const [loaded, setLoaded] = useState<Loaded | null>(null);
  const [error, setError] = useState<unknown>(undefined);
  /** Rises with every text that replaces the editor's. */
  const [generation, setGeneration] = useState(0);
  const [isDirty, setDirty] = useState(() => draftOf(thread, path) !== undefined);
  const [conflict, setConflict] = useState(false);
  const [failure, setFailure] = useState<string | null>(null);
  /** The version that the text in the editor is based on. */
  const base = useRef<string | null>(null);

  const show = async (): Promise<void> => {
    try {
      const now = await load(thread, path);
      setError(undefined);
      setLoaded(now);
      const etag = now.content.kind === "text" ? now.content.etag : null;
      const draft = draftOf(thread, path);
      base.current = draft ? draft.etag : etag;
      setConflict(draft !== undefined && draft.etag !== etag);
      setGeneration((before) => before + 1);
    } catch (failed) {
      setError(failed ?? new Error("failed"));
    }
  };
  useEffect(() => void show(), [thread, path]);
  useEffect(() => {
    if (changes === 0 || loaded === null) return;
    void statFile(thread, path).then(
      (entry) => {
        if (entry.etag === base.current && entry.etag !== null) return;
        if (draftOf(thread, path)) setConflict(true);
        else void show();
      },
      (failed: unknown) => {
        if (failed instanceof Problem && failed.status === 404 && !draftOf(thread, path)) setError(failed);
      },
    );
  }, [changes]);

  const changed = (text: string): void => {
    if (loaded?.content.kind !== "text") return;
    const isSame = text === loaded.content.text;
    keepDraft(thread, path, isSame ? undefined : { text, etag: base.current });
    setDirty(!isSame);
  };
  const save = async (expected: "unchanged" | "anything" = "unchanged"): Promise<void> => {
    const draft = draftOf(thread, path);
    if (!draft || loaded?.content.kind !== "text") return;
    const etag = base.current;
    try {
      const written = await writeFile(
        thread,
        path,
        draft.text,
        expected === "unchanged" && etag !== null ? { is: "unchanged", etag } : { is: "anything" },
      );
      base.current = written.etag;
      // What was typed since is still unsaved.
      const typed = draftOf(thread, path)?.text ?? draft.text;
      const isSame = typed === draft.text;
      keepDraft(thread, path, isSame ? undefined : { text: typed, etag: written.etag });
      setLoaded({ ...loaded, content: { kind: "text", text: draft.text, etag: written.etag } });
      setDirty(!isSame);
      setConflict(false);
      setFailure(null);
      onSaved();
      toast("Saved.");
    } catch (failed) {
      if (failed instanceof Problem && failed.code === "version_conflict") setConflict(true);
      else setFailure(describe(failed));
    }
  };
  const reload = async (): Promise<void> => {
    const yes = await ask({
      title: "Discard your changes?",
      text: "The file is loaded again, and what you typed is lost.",
      action: "Discard",
      danger: true,
    });
    if (!yes) return;
    keepDraft(thread, path, undefined);
    setDirty(false);
    await show();
  };

  return (
    <section class="file" aria-label={`File ${path}`}>
      <header class="file-head">
        <Button tone="ghost" class="phone-only" aria-label="Back to the files" onClick={onClose}>
          ‹
        </Button>
        <h2 title={path}>{path}</h2>
        {isDirty && <Badge tone="warn">unsaved</Badge>}
        {loaded && (
          <span class="quiet-text wide-only">
            {bytes(loaded.entry.size)}
            {loaded.entry.modified_at && (
              <>
                {" · "}
                <Ago time={loaded.entry.modified_at} />
              </>
            )}
          </span>
        )}
        <span class="tools">
          {loaded?.content.kind === "text" && (
            <Button tone="main" disabled={!isDirty} title="Save (Ctrl-S)" onClick={() => save()}>
              Save
            </Button>
          )}
          <a
            class="button ghost"
            href={fileAddress(thread, path)}
            download={nameOf(path)}
            aria-label="Download"
            title="Download"
          >
            <Icon name="download" />
          </a>
          {loaded && (
            <Menu label="More file actions" items={actions(loaded.entry)}>
              <Icon name="more" />
            </Menu>
          )}
        </span>
      </header>
      {conflict && (
        <div class="failure conflict" role="alert">
          <p>This file was changed since you opened it.</p>
          <span class="row-actions">
            <Button onClick={reload}>Discard mine and reload</Button>
            <Button tone="danger" onClick={() => save("anything")}>
              Overwrite
            </Button>
          </span>
        </div>
      )}
      {failure !== null && (
        <p class="failure" role="alert">
          Couldn't save the file. {failure}
        </p>
      )}
      {error !== undefined && <Failure error={error} retry={() => void show()} />}
      {loaded && error === undefined && (
        <FileContent
          key={`${path} ${generation}`}
          name={loaded.entry.name}
          content={loaded.content}
          draft={draftOf(thread, path)?.text}
          onChange={changed}
          onSave={() => void save()}
        />
      )}
    </section>
  );
}

interface ContentProps {
  name: string;
  content: Content;
  draft: string | undefined;
  onChange: (text: string) => void;
  onSave: () => void;
}

function FileContent({ name, content, draft, onChange, onSave }: ContentProps) {
  switch (content.kind) {
    case "text":
      return <TextEditor name={name} text={draft ?? content.text} onChange={onChange} onSave={onSave} />;
    case "image":
      return (
        <div class="file-image">
          <img src={content.source} alt={name} />
        </div>
      );
    case "pdf":
      return <PdfFrame name={name} content={content.content} />;
    case "other":
      return <p class="file-other quiet-text">{content.why}</p>;
  }
}

/** A PDF in the viewer of the browser, which runs no script of ours and reads nothing but this file. */
function PdfFrame({ name, content }: { name: string; content: Uint8Array }) {
  const [source, setSource] = useState<string | null>(null);
  useEffect(() => {
    const address = URL.createObjectURL(new Blob([content.slice().buffer], { type: "application/pdf" }));
    setSource(address);
    return () => URL.revokeObjectURL(address);
  }, [content]);
  return source === null ? null : <iframe class="file-pdf" src={source} title={name} />;
}

function TextEditor(props: {
  name: string;
  text: string;
  onChange: (text: string) => void;
  onSave: () => void;
}) {
  const box = useRef<HTMLDivElement>(null);
  const [failed, setFailed] = useState(false);
  const latest = useRef(props);
  latest.current = props;
  useEffect(() => {
    let editor: Editor | null = null;
    let here = true;
    import("./editor.ts").then(
      (module) => {
        if (!here || !box.current) return;
        const { name, text } = latest.current;
        editor = new module.Editor(box.current, {
          name,
          text,
          onChange: (changed) => latest.current.onChange(changed),
          onSave: () => latest.current.onSave(),
        });
      },
      () => setFailed(true),
    );
    return () => {
      here = false;
      editor?.dispose();
    };
  }, []);
  if (failed) return <Failure error={new Error("the editor could not be loaded")} />;
  return <div ref={box} class="file-editor" />;
}
