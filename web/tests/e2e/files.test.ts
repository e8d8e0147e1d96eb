import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Page } from "playwright-core";
import { expect, test } from "vitest";
import { complaints, person, stage, threadPage, until } from "./harness.ts";

const scene = stage();
const { server } = scene;

const item = (page: Page, path: string) => page.locator(`[role=treeitem][data-path="${path}"]`);
const content = (page: Page) => page.locator(".file-editor .cm-content");

/** Returns the content of a file of the thread. */
const fileText = async (thread: string, path: string): Promise<string> => {
  const query = new URLSearchParams({ path, format: "json" });
  return (await server.call<{ content: string }>("GET", `/api/threads/${thread}/fs/read?${query}`)).content;
};

async function open(thread: string): Promise<{ page: Page; close: () => Promise<void> }> {
  const { context, page } = await person(scene.browser, server);
  await page.goto(threadPage(server, thread, "files"));
  await item(page, "/workspace").waitFor();
  return { page, close: () => context.close() };
}

test("a file is found in the tree, highlighted, edited and saved", async () => {
  await server.exec("edited", "mkdir -p src && printf 'def mean(values):\\n    return 1\\n' > src/mean.py");
  const { page, close } = await open("edited");
  await item(page, "/workspace/src").click();
  await item(page, "/workspace/src/mean.py").click();
  await content(page).getByText("def mean(values):").waitFor();
  await until("a coloured keyword", async () => {
    const keyword = content(page).locator("span", { hasText: /^def$/ });
    return (await keyword.count()) === 1;
  });
  const save = page.getByRole("button", { name: "Save" });
  expect(await save.isDisabled()).toBe(true);
  await content(page).click();
  await page.keyboard.press("Control+End");
  await page.keyboard.type("# done");
  await page.getByText("unsaved").waitFor();
  // Unsaved text is kept when another file is opened.
  await page.getByRole("link", { name: "Timeline" }).click();
  await page.getByRole("link", { name: "Files" }).click();
  await item(page, "/workspace/src").click();
  await item(page, "/workspace/src/mean.py").click();
  await content(page).getByText("# done").waitFor();
  await content(page).click();
  await page.keyboard.press("Control+s");
  await page.locator(".toast", { hasText: "Saved." }).waitFor();
  expect(await fileText("edited", "/workspace/src/mean.py")).toBe("def mean(values):\n    return 1\n# done");
  await page.getByText("unsaved").waitFor({ state: "detached" });
  expect(complaints.get(page)).toEqual([]);
  await close();
});

test("a file that changed elsewhere is not overwritten without asking", async () => {
  await server.exec("conflict", "echo one > note.txt");
  const { page, close } = await open("conflict");
  await item(page, "/workspace/note.txt").click();
  await content(page).getByText("one").waitFor();
  // Without unsaved changes, the editor shows the new content.
  await server.exec("conflict", "echo two > note.txt");
  await content(page).getByText("two").waitFor();
  await content(page).click();
  await page.keyboard.press("Control+a");
  await page.keyboard.type("mine");
  await server.exec("conflict", "echo three > note.txt");
  const alert = page.getByRole("alert");
  await alert.getByText("This file was changed since you opened it.").waitFor();
  await page.getByRole("button", { name: "Save" }).click();
  await alert.getByRole("button", { name: "Overwrite" }).waitFor();
  expect(await fileText("conflict", "/workspace/note.txt")).toBe("three\n");
  await alert.getByRole("button", { name: "Overwrite" }).click();
  await page.locator(".toast", { hasText: "Saved." }).waitFor();
  expect(await fileText("conflict", "/workspace/note.txt")).toBe("mine");
  await alert.waitFor({ state: "detached" });
  await close();
});

test("the files that the last command changed are listed with their differences", async () => {
  await server.exec("compared", "mkdir -p src && seq 20 > src/list.txt && echo gone > old.txt");
  const { page, close } = await open("compared");
  const changes = page.locator(".file-changes");
  // Changes from before the page was opened are found by the times of the files.
  await changes.getByText("2 files changed").waitFor();
  await page.getByText("The next command is compared.").waitFor();
  await server.exec("compared", "sed -i s/^7$/seven/ src/list.txt; rm old.txt; echo hello > new.txt");
  await changes.getByRole("button", { name: "removed old.txt" }).waitFor();
  await changes.getByRole("button", { name: "added new.txt" }).waitFor();
  await changes.locator("code", { hasText: "sed -i s/^7$/seven/" }).waitFor();
  await changes.getByRole("button", { name: "changed src/list.txt" }).click();
  const diff = page.locator(".file-diff");
  expect(await diff.locator(".minus").allInnerTexts()).toEqual(["- 7\n"]);
  expect(await diff.locator(".plus").allInnerTexts()).toEqual(["+ seven\n"]);
  await page.getByRole("button", { name: "Open file" }).click();
  await content(page).getByText("seven").waitFor();
  await changes.getByRole("button", { name: "removed old.txt" }).click();
  await diff.locator(".minus", { hasText: "gone" }).waitFor();
  // The person's own changes are not listed.
  await item(page, "/workspace/new.txt").click();
  await content(page).click();
  await page.keyboard.press("Control+a");
  await page.keyboard.type("mine");
  await page.keyboard.press("Control+s");
  await page.locator(".toast", { hasText: "Saved." }).waitFor();
  await until(
    "the person's change",
    async () => (await fileText("compared", "/workspace/new.txt")) === "mine",
  );
  await page.getByRole("link", { name: "Timeline" }).click();
  await server.exec("compared", "echo later > later.txt");
  await page.getByRole("link", { name: "Files" }).click();
  await changes.getByText("1 file changed").waitFor();
  await changes.getByRole("button", { name: "added later.txt" }).click();
  await diff.locator(".plus", { hasText: "later" }).waitFor();
  expect(complaints.get(page)).toEqual([]);
  await close();
});

test("files are uploaded, replaced only when confirmed, shown as images, and downloaded", async () => {
  await server.thread("moved");
  const { page, close } = await open("moved");
  const picker = page.getByLabel("Files to upload");
  const upload = (name: string, text: string): Promise<void> =>
    picker.setInputFiles({ name, mimeType: "text/plain", buffer: Buffer.from(text) });
  await upload("hello.txt", "first");
  await page.locator(".uploads li.done", { hasText: "/workspace/hello.txt" }).waitFor();
  await item(page, "/workspace/hello.txt").waitFor();
  await upload("hello.txt", "second");
  await page.getByRole("dialog").getByText("Replace the file?").waitFor();
  await page.getByRole("button", { name: "Cancel", exact: true }).click();
  await page.locator(".uploads li.cancelled").waitFor();
  expect(await fileText("moved", "/workspace/hello.txt")).toBe("first");

  // The smallest PNG, dropped on a directory.
  const png =
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==";
  const data = await page.evaluateHandle((base64) => {
    const bytes = Uint8Array.from(atob(base64), (char) => char.charCodeAt(0));
    const transfer = new DataTransfer();
    transfer.items.add(new File([bytes], "dot.png", { type: "image/png" }));
    return transfer;
  }, png);
  await item(page, "/workspace").dispatchEvent("drop", { dataTransfer: data });
  await item(page, "/workspace/dot.png").click();
  const image = page.locator(".file-image img");
  await image.waitFor();
  await until("a drawn image", () => image.evaluate((img: HTMLImageElement) => img.naturalWidth === 1));

  await item(page, "/workspace/hello.txt").click();
  await content(page).getByText("first").waitFor();
  const [download] = await Promise.all([
    page.waitForEvent("download"),
    page.getByRole("link", { name: "Download" }).click(),
  ]);
  expect(download.suggestedFilename()).toBe("hello.txt");
  expect(complaints.get(page)).toEqual([]);
  await close();
});

test("a PDF is shown by the browser's own viewer", async () => {
  const objects = [
    "<</Type/Catalog/Pages 2 0 R>>",
    "<</Type/Pages/Kids[3 0 R]/Count 1>>",
    "<</Type/Page/Parent 2 0 R/MediaBox[0 0 200 100]>>",
  ];
  const pdf = `%PDF-1.4\n${objects.map((one, nth) => `${nth + 1} 0 obj${one}endobj\n`).join("")}trailer<</Root 1 0 R>>\n%%EOF`;
  await server.exec("printed", `cat > page.pdf <<'END'\n${pdf}\nEND`);
  const { page, close } = await open("printed");
  await item(page, "/workspace/page.pdf").click();
  const frame = page.locator("iframe.file-pdf");
  await frame.waitFor();
  expect(await frame.getAttribute("src")).toMatch(/^blob:/);
  // A frame that the content security policy blocks has no such document.
  await until("the document of the frame", () => page.frames().some((one) => one.url().startsWith("blob:")));
  expect(complaints.get(page)).toEqual([]);
  await close();
});

test("a dropped folder is uploaded with its whole content", async () => {
  await server.thread("dropped");
  const source = mkdtempSync(join(tmpdir(), "stead-drop-"));
  mkdirSync(join(source, "site/img/empty"), { recursive: true });
  writeFileSync(join(source, "site/index.html"), "<h1>hi</h1>");
  writeFileSync(join(source, "site/img/a b.txt"), "inner");
  const { page, close } = await open("dropped");
  const box = (await item(page, "/workspace").boundingBox())!;
  const devtools = await page.context().newCDPSession(page);
  const data = { items: [], files: [join(source, "site")], dragOperationsMask: 1 };
  const at = { x: box.x + box.width / 2, y: box.y + box.height / 2 };
  for (const type of ["dragEnter", "dragOver", "drop"] as const)
    await devtools.send("Input.dispatchDragEvent", { type, ...at, data });
  await page.locator(".uploads li.done", { hasText: "/workspace/site/img/a b.txt" }).waitFor();
  await page.locator(".uploads li.done", { hasText: "/workspace/site/index.html" }).waitFor();
  expect(await fileText("dropped", "/workspace/site/img/a b.txt")).toBe("inner");
  expect(await fileText("dropped", "/workspace/site/index.html")).toBe("<h1>hi</h1>");
  await item(page, "/workspace/site").waitFor();
  expect(complaints.get(page)).toEqual([]);
  rmSync(source, { recursive: true });
  await close();
});

test("files and memories are created, renamed and deleted, also with the keyboard", async () => {
  await server.thread("tidied");
  const { page, close } = await open("tidied");
  await item(page, "/memories/hot").focus();
  await page.keyboard.press("ArrowUp");
  await page.keyboard.press("ArrowRight");
  await until("the persistent memories", async () =>
    page.evaluate(() => document.activeElement?.getAttribute("aria-expanded") === "true"),
  );
  await page.keyboard.press("Enter");
  await page.getByText("Uploads and drops go to /memories/persistent").waitFor();
  await page.getByRole("button", { name: "New file" }).click();
  await page.getByLabel("Path").fill("/memories/persistent/learned.md");
  await page.keyboard.press("Enter");
  await content(page).click();
  await page.keyboard.type("# Learned");
  await page.keyboard.press("Control+s");
  await page.locator(".toast", { hasText: "Saved." }).waitFor();
  expect(await fileText("tidied", "/memories/persistent/learned.md")).toBe("# Learned");
  const act = async (name: string): Promise<void> => {
    await page.getByRole("button", { name: "More file actions" }).click();
    await page.getByRole("menuitem", { name }).click();
  };
  await act("Move or rename…");
  await page.getByLabel("Path").fill("/memories/persistent/lessons.md");
  await page.getByRole("button", { name: "Move" }).click();
  await item(page, "/memories/persistent/lessons.md").waitFor();
  await page.getByRole("heading", { name: "/memories/persistent/lessons.md" }).waitFor();
  await act("Delete…");
  await page.getByRole("dialog").getByRole("button", { name: "Delete" }).click();
  await item(page, "/memories/persistent/lessons.md").waitFor({ state: "detached" });
  await page.getByText("No file is open.").waitFor();
  await close();
});
