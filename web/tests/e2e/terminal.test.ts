import { expect, test } from "vitest";
import {
  complaints,
  connected,
  launch,
  person,
  screenText,
  showStatus,
  shows,
  stage,
  stranger,
  threadPage,
  type,
  until,
  wholeText,
} from "./harness.ts";

const scene = stage();
const { server } = scene;

test("a printed link signs in once, with a cookie that scripts cannot read", async () => {
  const { context, page } = await stranger(scene.browser, server);
  await page.goto(`${server.url}/`);
  await page.getByText("This browser is not signed in").waitFor();
  const link = await server.anotherLink();
  await page.goto(link);
  expect(new URL(page.url()).search).toBe("");
  await page.goto(`${server.url}/`);
  await page.getByRole("heading", { name: "Now" }).waitFor();
  expect(await page.evaluate(() => document.cookie)).toBe("");
  expect(await page.evaluate(() => JSON.stringify({ ...localStorage, ...sessionStorage }))).not.toMatch(
    /token|code/,
  );
  const [cookie] = await context.cookies();
  expect(cookie).toMatchObject({ httpOnly: true, sameSite: "Strict" });
  const second = await stranger(scene.browser, server);
  expect((await second.page.goto(link))?.status()).toBe(401);
  await Promise.all([context.close(), second.context.close()]);
});

test("a person creates a thread, types and sees the output, also after a reload", async () => {
  const { context, page } = await person(scene.browser, server);
  await page.getByRole("button", { name: "New thread" }).first().click();
  await page.getByRole("textbox", { name: "Name" }).fill("by-hand");
  await page.getByRole("button", { name: "Create" }).click();
  await page.waitForURL("**/ui/threads/by-hand");
  await connected(page);
  await type(page, "echo to$((1+1))day; printf '\\033[31mred\\033[0m \\u65e5\\u672c\\n'");
  await shows(page, /^to2day$/m);
  // Including the prompt that follows, which the next screen has, too.
  await shows(page, /^red 日本\s*\n.*[#$]\s*$/m);
  const before = await screenText(page);
  await page.reload();
  await connected(page);
  await until("the same screen", async () => (await screenText(page)).trim() === before.trim());
  expect(complaints.get(page)).toEqual([]);
  await context.close();
});

test("the server alone answers a terminal query of a program, once", async () => {
  const { context, page } = await person(scene.browser, server);
  await server.thread("questions");
  await page.goto(threadPage(server, "questions"));
  await connected(page);
  await type(
    page,
    [
      "stty -echo; printf '\\033[c\\033[6n'; IFS= read -rs -t 1 -d '' reply; stty echo",
      "printf '%s' \"$reply\" | od -An -c | tr -d ' \\n'; echo; echo all-read",
    ].join("; "),
  );
  await shows(page, /^all-read$/m);
  const answers = (await screenText(page)).match(/\\?033\[\?[0-9;]*c/g) ?? [];
  expect(answers.length, await screenText(page)).toBe(1);
  await page.reload();
  await connected(page);
  await type(page, "echo after reload");
  await shows(page, /^after reload$/m);
  await context.close();
});

test("a command of an agent appears for a person who watches, and its receipt in the timeline", async () => {
  const { context, page } = await person(scene.browser, server);
  await server.thread("watched");
  await page.goto(threadPage(server, "watched"));
  await connected(page);
  const done = await server.exec("watched", "cd /tmp && export MARK=seen && echo agent-$MARK && ls /nowhere");
  expect(done.stdout).toBe("agent-seen\n");
  await shows(page, "agent-seen");
  await showStatus(page);
  await until("the directory in the panel", async () =>
    (await page.locator(".panel").innerText()).includes("/tmp"),
  );
  await page.getByRole("link", { name: "Timeline" }).click();
  const entry = page.locator(".entry.command", { hasText: "agent-$MARK" });
  await entry.waitFor();
  await until("its exit code", async () => (await entry.innerText()).includes("exit 2"));
  await entry.locator("summary").click();
  await until("the output", async () => (await entry.innerText()).includes("No such file or directory"));
  const text = await entry.innerText();
  expect(text).toContain("agent-seen");
  expect(text).toMatch(/directory\s+\S+\s+→\s+\/tmp/);
  expect(text).toMatch(/MARK\s+seen/);
  await server.exec("watched", "printf 'a\\033[31mneed\\033[0mle\\n'");
  await server.exec("watched", "echo hay");
  await page.getByLabel("Search the timeline").fill("aneedle");
  await until("what was printed is found", async () => (await page.locator(".entry").count()) === 1);
  expect(complaints.get(page)).toEqual([]);
  await context.close();
});

test("two browsers share a terminal: one has control, the other takes it and releases it", async () => {
  await server.thread("shared");
  const one = await person(scene.browser, server);
  const two = await person(scene.browser, server);
  await one.page.goto(threadPage(server, "shared"));
  await connected(one.page);
  await two.page.goto(threadPage(server, "shared"));
  await connected(two.page);
  await one.page.getByText("You have control").waitFor();
  await two.page.getByText("View only · browser has control").waitFor();
  await type(two.page, "echo not-typed");
  await type(one.page, "echo from-one");
  await shows(two.page, /^from-one$/m);
  expect(await screenText(two.page)).not.toContain("not-typed");
  await two.page.getByRole("button", { name: "Take control" }).click();
  await two.page.getByText("You have control").waitFor();
  await one.page.getByText("View only · browser has control").waitFor();
  await type(two.page, "echo from-two");
  await shows(one.page, /^from-two$/m);
  await two.page.getByRole("button", { name: "Release control" }).click();
  await one.page.getByText("You have control").waitFor();
  await two.page.getByText("View only · browser has control").waitFor();
  await Promise.all([one.context.close(), two.context.close()]);
});

test("a page continues after its server was killed and started again, and no output is lost or repeated", async () => {
  const { context, page } = await person(scene.browser, server);
  await server.thread("survivor");
  await page.goto(threadPage(server, "survivor"));
  await connected(page);
  await type(page, "for i in $(seq 1 400); do echo line-$i; sleep 0.01; done; echo ended");
  await shows(page, /line-5$/m);
  await server.kill();
  await page.getByText(/Connection lost/).waitFor();
  await server.start();
  await connected(page);
  await shows(page, /^ended$/m);
  const seen = (await wholeText(page)).match(/line-\d+$/gm) ?? [];
  expect(seen).toEqual(Array.from({ length: 400 }, (_, index) => `line-${index + 1}`));
  await type(page, "echo still-$((40+2))");
  await shows(page, /^still-42$/m);
  await context.close();
}, 90_000);

test("a browser that goes offline says so, and is complete once it is online again", async () => {
  const { context, page } = await person(scene.browser, server);
  await server.thread("offline");
  await page.goto(threadPage(server, "offline"));
  await connected(page);
  await context.setOffline(true);
  await page.getByText("This device is offline").waitFor();
  await server.exec("offline", "echo printed-meanwhile");
  expect(await screenText(page)).not.toContain("printed-meanwhile");
  await context.setOffline(false);
  await connected(page);
  await shows(page, /^printed-meanwhile$/m);
  const twice = (await wholeText(page)).match(/^printed-meanwhile$/gm) ?? [];
  expect(twice.length).toBe(1);
  await context.close();
});

test("the terminal is drawn with WebGL if available, and a screen reader can read it", async () => {
  const able = await launch(true);
  try {
    const { page } = await person(able, server);
    await page.evaluate(() =>
      localStorage.setItem("stead.preferences", JSON.stringify({ screenReader: true })),
    );
    await server.thread("drawn");
    await page.goto(threadPage(server, "drawn"));
    await connected(page);
    await page.locator(".terminal .xterm-screen canvas").first().waitFor();
    await type(page, "echo read-me");
    const rows = page.locator(".terminal .xterm-accessibility-tree");
    await until("the text for a screen reader", async () => /^read-me\s*$/m.test(await rows.innerText()));
    expect(complaints.get(page)).toEqual([]);
  } finally {
    await able.close();
  }
});
