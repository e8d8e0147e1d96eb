/** The tree of a thread's files. Arrows move, Enter opens; files can be dropped on a directory. */

import { useRef } from "preact/hooks";
import { fileAddress } from "../api/files.ts";
import { nameOf, parentOf, type TreeRow } from "../lib/file-tree.ts";

interface Props {
  thread: string;
  rows: TreeRow[];
  /** The path that the view shows. */
  selected: string | null;
  onOpen: (row: TreeRow) => void;
  onExpand: (path: string, expanded: boolean) => void;
  onDrop: (directory: string, data: DataTransfer) => void;
}

export function FileTree({ thread, rows, selected, onOpen, onExpand, onDrop }: Props) {
  const box = useRef<HTMLDivElement>(null);
  const at = Math.max(
    0,
    rows.findIndex((row) => row.path === selected),
  );
  const focus = (index: number): void =>
    box.current?.querySelectorAll<HTMLElement>("[role=treeitem]")[index]?.focus();
  const keys = (event: KeyboardEvent): void => {
    const items = [...(box.current?.querySelectorAll("[role=treeitem]") ?? [])];
    const index = items.indexOf(document.activeElement!);
    const row = rows[index];
    if (!row) return;
    switch (event.key) {
      case "ArrowDown":
        focus(Math.min(rows.length - 1, index + 1));
        break;
      case "ArrowUp":
        focus(Math.max(0, index - 1));
        break;
      case "Home":
        focus(0);
        break;
      case "End":
        focus(rows.length - 1);
        break;
      case "ArrowRight":
        if (row.isDirectory && !row.isExpanded) onExpand(row.path, true);
        else if (row.isDirectory) focus(Math.min(rows.length - 1, index + 1));
        break;
      case "ArrowLeft":
        if (row.isExpanded) onExpand(row.path, false);
        else focus(rows.findLastIndex((other, nth) => nth < index && other.level < row.level));
        break;
      case "Enter":
      case " ":
        onOpen(row);
        break;
      default:
        return;
    }
    event.preventDefault();
  };
  return (
    <div ref={box} class="file-tree" role="tree" aria-label="Files" onKeyDown={keys}>
      {rows.map((row, index) => (
        <TreeItem
          key={row.path}
          row={row}
          isSelected={row.path === selected}
          isReachable={index === at}
          address={row.entry?.type === "file" ? fileAddress(thread, row.path) : null}
          onClick={() => onOpen(row)}
          onDrop={(data) => onDrop(row.isDirectory ? row.path : parentOf(row.path), data)}
        />
      ))}
    </div>
  );
}

interface ItemProps {
  row: TreeRow;
  isSelected: boolean;
  /** Whether the Tab key reaches it. */
  isReachable: boolean;
  /** Where the content of a file is. */
  address: string | null;
  onClick: () => void;
  onDrop: (data: DataTransfer) => void;
}

function TreeItem({ row, isSelected, isReachable, address, onClick, onDrop }: ItemProps) {
  const mark = row.isDirectory ? (row.isExpanded ? "▾" : "▸") : "";
  return (
    // biome-ignore lint/a11y/useKeyWithClickEvents: the tree handles the keys.
    <div
      role="treeitem"
      class={`tree-item level-${Math.min(row.level, 12)}${row.entry === null ? " root" : ""}`}
      aria-level={row.level}
      aria-selected={isSelected}
      aria-expanded={row.isDirectory ? row.isExpanded : undefined}
      tabIndex={isReachable ? 0 : -1}
      title={row.path}
      data-path={row.path}
      draggable={address !== null}
      onClick={onClick}
      onDragStart={(event) => {
        // Chromium saves a file that is dragged out of the page.
        if (address === null) return;
        const whole = new URL(address, location.origin).href;
        event.dataTransfer?.setData(
          "DownloadURL",
          `application/octet-stream:${nameOf(row.path).replaceAll(":", "_")}:${whole}`,
        );
      }}
      onDragOver={(event) => {
        if (!event.dataTransfer?.types.includes("Files")) return;
        event.preventDefault();
        event.stopPropagation();
        event.currentTarget.classList.add("drop");
      }}
      onDragLeave={(event) => event.currentTarget.classList.remove("drop")}
      onDrop={(event) => {
        event.preventDefault();
        event.stopPropagation();
        event.currentTarget.classList.remove("drop");
        if (event.dataTransfer) onDrop(event.dataTransfer);
      }}
    >
      <span class="tree-mark" aria-hidden="true">
        {mark}
      </span>
      <span class="tree-name">{row.label}</span>
      {row.entry?.type === "link" && <span class="quiet-text"> → {row.entry.target}</span>}
    </div>
  );
}
