/** The files of a thread: a tree beside the file that is open. Loaded on demand. */

import { useEffect, useMemo, useRef, useState } from "preact/hooks";
import { describe } from "../api/client.ts";
import { listDirectory, makeDirectory, moveFile, removeFile, watchFiles, writeFile } from "../api/files.ts";
import type { FileEntry } from "../api/types.ts";
import { ChangeList, ChangeView, useLastChanges } from "../files/changes.tsx";
import { FileView } from "../files/file-view.tsx";
import {
  droppedItems,
  MAX_UPLOADS,
  packFolder,
  pickedItems,
  saveBlob,
  type UploadItem,
} from "../files/folders.ts";
import { fileHistory } from "../files/history.ts";
import { FileTree } from "../files/tree.tsx";
import { UploadList, useUploads } from "../files/uploads.tsx";
import { hasDrafts, keepDraft } from "../lib/drafts.ts";
import type { FileChange } from "../lib/file-changes.ts";
import {
  directoriesAbove,
  join,
  nameOf,
  parentOf,
  rootOf,
  type TreeRow,
  visibleRows,
} from "../lib/file-tree.ts";
import { go, threadAddress } from "../lib/router.ts";
import { ask, toast } from "../ui/dialogs.tsx";
import { Icon } from "../ui/icons.tsx";
import { Button, Empty, Menu, type MenuItem } from "../ui/parts.tsx";
import "../files/files.css";

const WORKSPACE = "/workspace";
/** How long changes are collected before directories are listed again. */
const SETTLE_MS = 250;

interface Props {
  thread: string;
  /** The file that is open. */
  path: string | null;
}

/** The directories that were listed, listed again when their files change. */
function useListings(thread: string, expanded: ReadonlySet<string>, onFailed: (text: string) => void) {
  const [listings, setListings] = useState<Map<string, FileEntry[]>>(new Map());
  const listed = useRef(new Set<string>());
  const refresh = (directory: string): void => {
    listed.current.add(directory);
    listDirectory(thread, directory).then(
      (entries) => setListings((before) => new Map(before).set(directory, entries)),
      (error: unknown) => {
        listed.current.delete(directory);
        onFailed(`Couldn't list ${directory}. ${describe(error)}`);
      },
    );
  };
  useEffect(() => {
    for (const directory of expanded) if (!listed.current.has(directory)) refresh(directory);
  }, [expanded]);
  return { listings, refresh, isListed: (directory: string) => listed.current.has(directory) };
}

/** A folder that is being packed for download. */
interface Packing {
  path: string;
  share: number;
  cancel: () => void;
}

/** Moving and deleting, unless the folder is a root. */
function folderEntryActions(
  rows: readonly TreeRow[],
  directory: string,
  actions: (entry: FileEntry) => MenuItem[],
): MenuItem[] {
  const entry = rows.find((row) => row.path === directory)?.entry;
  return entry ? actions(entry).filter((item) => item.label !== "Copy path") : [];
}

export default function FilesView({ thread, path }: Props) {
  const [expanded, setExpanded] = useState<ReadonlySet<string>>(() => new Set([WORKSPACE]));
  const [directory, setDirectory] = useState(() => (path ? parentOf(path) : WORKSPACE));
  const [changes, setChanges] = useState(0);
  const { listings, refresh, isListed } = useListings(thread, expanded, toast);
  const rows = useMemo(() => visibleRows(listings, expanded), [listings, expanded]);
  /** What a person changes here is no change of a command. */
  const changedHere = (): void => fileHistory(thread).changed();
  const { uploads, start, clear } = useUploads(thread, (file) => {
    refresh(parentOf(file));
    changedHere();
  });
  const picker = useRef<HTMLInputElement>(null);
  const folderPicker = useRef<HTMLInputElement>(null);
  const [packing, setPacking] = useState<Packing | null>(null);
  const last = useLastChanges(thread, changes);
  const [compared, setCompared] = useState<{ change: FileChange; command: string } | null>(null);

  // A path in the address is visible in the tree.
  useEffect(() => {
    setCompared(null);
    if (path === null) return;
    setDirectory(parentOf(path));
    setExpanded((before) => new Set([...before, ...directoriesAbove(path)]));
  }, [path]);
  const root = rootOf(directory);
  useEffect(() => {
    const pending = new Set<string | null>();
    let timer: ReturnType<typeof setTimeout> | undefined;
    const settle = (): void => {
      const directories = pending.has(null)
        ? [...expanded]
        : [...pending].map((changed) => parentOf(changed!));
      pending.clear();
      for (const one of new Set(directories)) if (isListed(one)) refresh(one);
      setChanges((before) => before + 1);
    };
    const unwatch = watchFiles(thread, root, (changed) => {
      pending.add(changed);
      clearTimeout(timer);
      timer = setTimeout(settle, SETTLE_MS);
    });
    return () => {
      clearTimeout(timer);
      unwatch();
    };
  }, [thread, root]);
  useEffect(() => {
    const warn = (event: BeforeUnloadEvent): void => {
      if (hasDrafts()) event.preventDefault();
    };
    addEventListener("beforeunload", warn);
    return () => removeEventListener("beforeunload", warn);
  }, []);

  const show = (file: string | null): void =>
    go(threadAddress(thread, "files", file === null ? undefined : { path: file }));
  const expand = (at: string, open: boolean): void =>
    setExpanded((before) => {
      const next = new Set(before);
      if (open) next.add(at);
      else next.delete(at);
      return next;
    });
  const openChange = (change: FileChange): void => {
    if (last?.isCompared) setCompared({ change, command: last.command });
    else show(change.path);
  };
  const open = (row: TreeRow): void => {
    if (!row.isDirectory) {
      setCompared(null);
      show(row.path);
      return;
    }
    setDirectory(row.path);
    expand(row.path, !row.isExpanded);
  };
  const upload = (into: string, items: readonly UploadItem[]): void => {
    if (items.length === 0) return;
    if (items.length > MAX_UPLOADS) {
      toast(`Couldn't upload: more than ${MAX_UPLOADS} files. Pack them into an archive first.`);
      return;
    }
    expand(into, true);
    void start(into, items);
  };
  const drop = (into: string, data: DataTransfer): void => {
    droppedItems(data).then(
      (items) => {
        if (items.length === 0) toast("Nothing to upload: the folder is empty.");
        upload(into, items);
      },
      (error: unknown) => toast(`Couldn't read what was dropped. ${describe(error)}`),
    );
  };
  const downloadFolder = async (): Promise<void> => {
    const controller = new AbortController();
    setPacking({ path: directory, share: 0, cancel: () => controller.abort() });
    const progress = (share: number): void => setPacking((before) => before && { ...before, share });
    try {
      const blob = await packFolder(thread, directory, progress, controller.signal);
      saveBlob(blob, `${nameOf(directory) === "/" ? "sandbox" : nameOf(directory)}.tar.gz`);
    } catch (error) {
      if (!controller.signal.aborted) toast(`Couldn't download ${directory}: ${describe(error)}`);
    } finally {
      setPacking(null);
    }
  };

  const create = async (kind: "file" | "folder"): Promise<void> => {
    const made = await ask({
      title: `New ${kind}`,
      action: "Create",
      fields: [{ name: "path", label: "Path", value: join(directory, "") }],
      submit: ({ path: at }) =>
        kind === "file" ? writeFile(thread, at!, "", { is: "absent" }) : makeDirectory(thread, at!),
      failed: `Couldn't create the ${kind}.`,
    });
    if (!made) return;
    refresh(parentOf(made.path!));
    changedHere();
    if (kind === "file") show(made.path!);
    else expand(made.path!, true);
  };
  const rename = async (entry: FileEntry): Promise<void> => {
    const moved = await ask({
      title: "Move or rename",
      action: "Move",
      fields: [{ name: "to", label: "Path", value: entry.path }],
      submit: ({ to }) => moveFile(thread, entry.path, to!),
      failed: "Couldn't move the file.",
    });
    if (!moved) return;
    refresh(parentOf(entry.path));
    changedHere();
    refresh(parentOf(moved.to!));
    if (entry.type === "directory") setDirectory(moved.to!);
    else show(moved.to!);
  };
  const remove = async (entry: FileEntry): Promise<void> => {
    const yes = await ask({
      title: `Delete ${nameOf(entry.path)}?`,
      text: "This cannot be undone.",
      sample: entry.path,
      action: "Delete",
      danger: true,
      submit: () => removeFile(thread, entry),
      failed: "Couldn't delete the file.",
    });
    if (!yes) return;
    keepDraft(thread, entry.path, undefined);
    refresh(parentOf(entry.path));
    changedHere();
    if (entry.type === "directory") setDirectory(parentOf(entry.path));
    if (path === entry.path || path?.startsWith(`${entry.path}/`)) show(null);
  };
  const actions = (entry: FileEntry): MenuItem[] => [
    { label: "Copy path", run: () => void navigator.clipboard?.writeText(entry.path) },
    { label: "Move or rename…", run: () => rename(entry) },
    { label: "Delete…", tone: "danger", run: () => remove(entry) },
  ];

  const folderActions: MenuItem[] = [
    { label: "Download folder", disabled: packing !== null, run: downloadFolder },
    { label: "Copy path", run: () => void navigator.clipboard?.writeText(directory) },
    ...folderEntryActions(rows, directory, actions),
  ];

  return (
    <div
      class={`files${path === null && !compared ? "" : " has-file"}`}
      role="group"
      aria-label="Files of the thread"
      onDragOver={(event) => {
        if (event.dataTransfer?.types.includes("Files")) event.preventDefault();
      }}
      onDrop={(event) => {
        event.preventDefault();
        if (event.dataTransfer) drop(directory, event.dataTransfer);
      }}
    >
      <div class="files-side">
        <div class="files-bar">
          <Button onClick={() => picker.current?.click()}>Upload files</Button>
          <Button onClick={() => folderPicker.current?.click()}>Upload folder</Button>
          <Button onClick={() => create("file")}>New file</Button>
          <Button onClick={() => create("folder")}>New folder</Button>
          <input
            ref={picker}
            type="file"
            multiple
            hidden
            aria-label="Files to upload"
            onChange={(event) => {
              upload(directory, pickedItems(event.currentTarget.files));
              event.currentTarget.value = "";
            }}
          />
          <input
            ref={folderPicker}
            type="file"
            // @ts-expect-error: not in the types of attributes, but in all browsers.
            webkitdirectory
            multiple
            hidden
            aria-label="Folder to upload"
            onChange={(event) => {
              upload(directory, pickedItems(event.currentTarget.files));
              event.currentTarget.value = "";
            }}
          />
        </div>
        <div class="quiet-text files-target">
          <p>
            Uploads and drops go to <code>{directory}</code>
          </p>
          <Menu label="Folder actions" items={folderActions}>
            <Icon name="more" />
          </Menu>
        </div>
        {packing && (
          <div class="files-packing" role="status">
            <span class="upload-name">Packing {packing.path}</span>
            <progress value={packing.share} aria-label={`Download of ${packing.path}`} />
            <Button onClick={packing.cancel}>Cancel</Button>
          </div>
        )}
        {last && <ChangeList last={last} onOpen={openChange} />}
        <FileTree thread={thread} rows={rows} selected={path} onOpen={open} onExpand={expand} onDrop={drop} />
      </div>
      <div class="files-main">
        {compared ? (
          <ChangeView
            {...compared}
            onOpenFile={() => {
              setCompared(null);
              show(compared.change.path);
            }}
            onClose={() => setCompared(null)}
          />
        ) : path === null ? (
          <Empty title="No file is open." command={`stead exec --thread ${thread} -- 'ls -la'`}>
            <p>Select a file, drop files here to upload them, or list them with:</p>
          </Empty>
        ) : (
          <FileView
            key={path}
            thread={thread}
            path={path}
            changes={changes}
            actions={actions}
            onSaved={changedHere}
            onClose={() => show(null)}
          />
        )}
        <UploadList uploads={uploads} clear={clear} />
      </div>
    </div>
  );
}
