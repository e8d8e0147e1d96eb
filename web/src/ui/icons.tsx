/** The icons of the app, in the colour of the surrounding text. */

const PATHS = {
  now: "M2.5 10h4l2-5 3.5 10 2-5h3.5",
  threads: "M3 5h14M3 10h14M3 15h9",
  projects: "M2.5 6.5h6l1.5 2h7.5v7.5h-15z",
  sandboxes: "M10 2.5l7 3.5v8l-7 3.5-7-3.5V6zM3 6l7 3.5L17 6M10 9.5v8",
  leases: "M3 4h14v5H3zM3 11h14v5H3zM6 6.5h.01M6 13.5h.01",
  metrics: "M3 16V9M8 16V4M13 16v-5M17 16V7",
  settings: "M3 6h8M15 6h2M3 14h2M9 14h8M13 4v4M7 12v4",
  search: "M9 3.5a5.5 5.5 0 1 0 0 11 5.5 5.5 0 0 0 0-11zM13 13l4 4",
  split: "M3 4h14v12H3zM10 4v12",
  panel: "M3 4h14v12H3zM13 4v12",
  plus: "M10 4v12M4 10h12",
  more: "M4.5 10h.01M10 10h.01M15.5 10h.01",
  close: "M5 5l10 10M15 5L5 15",
  copy: "M7 7h9v9H7zM4 13V4h9",
  paste: "M7 4h6v3H7zM5 5.5v11h10v-11",
  signal: "M11 3l-6 8h4l-1 6 6-8h-4z",
  play: "M6 4l10 6-10 6z",
  pause: "M7 4v12M13 4v12",
  up: "M5 12l5-5 5 5",
  down: "M5 8l5 5 5-5",
  next: "M5 4l8 6-8 6zM15.5 4v12",
  previous: "M15 4l-8 6 8 6zM4.5 4v12",
  inbox: "M3 11l2.5-6.5h9L17 11v5H3zM3 11h4l1 2h4l1-2h4",
  key: "M12.5 3.5a4 4 0 1 0 0 8 4 4 0 0 0 0-8zM9.7 10.3L3.5 16.5M6 14l2 2",
  check: "M4 10.5l4 4 8-9",
  keyboard: "M2.5 6h15v8h-15zM5.5 9h.01M8.5 9h.01M11.5 9h.01M14.5 9h.01M7 11.5h6",
  trash: "M4 6h12M8 6V4h4v2M6 6l.7 10.5h6.6L14 6",
  share: "M13 7l4-3.5M17 7.5v-4h-4M15 11v5.5H3.5V5H9",
  download: "M10 3v9M6 9l4 4 4-4M4 16h12",
} as const;

export type IconName = keyof typeof PATHS;

export function Icon({ name }: { name: IconName }) {
  return (
    <svg class={`icon icon-${name}`} viewBox="0 0 20 20" aria-hidden="true" focusable="false">
      <path d={PATHS[name]} />
    </svg>
  );
}
