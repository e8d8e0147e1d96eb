/** Takes screenshots of the main views for the README, on a real server after some work. */

import { mkdirSync } from "node:fs";
import { join } from "node:path";
import type { Browser, Page } from "playwright-core";
import { afterAll, beforeAll, test } from "vitest";
import {
  connected,
  launch,
  person,
  Server,
  showStatus,
  shows,
  threadPage,
  type,
  until,
} from "../e2e/harness.ts";

const FOLDER = join(import.meta.dirname, "../../../docs/screenshots");
const SIZE = { width: 1280, height: 800 };
const server = new Server();
let browser: Browser;

const WORK = [
  "PS1='\\w \\$ '; mkdir -p /tmp/weather && cd /tmp/weather && git init -q . && export STAGE=dev",
  "printf 'def mean(values):\\n    return sum(values) / len(values)\\n' > weather.py && ls --color=always -l",
  "python3 -c 'import weather; print(weather.mean([18, 21, 24]))'",
  "python3 -c 'import weather; print(weather.mean([]))'",
  "export API_TOKEN=do-not-show && printf '\\033[32m✓\\033[0m 12 passed, \\033[33m1 skipped\\033[0m\\n'",
];

beforeAll(async () => {
  mkdirSync(FOLDER, { recursive: true });
  await server.start();
  browser = await launch();
  const say = (role: string, content: string): Promise<unknown> =>
    server.call("POST", "/api/threads/weather-report/messages", { role, content });
  await say("user", "Please set up the weather script and check that the mean is right.");
  // A first prompt without the home directory of the test.
  await server.thread("weather-report", { cwd: "/tmp", env: { HOME: "/tmp" } });
  for (const command of WORK.slice(0, 3)) await server.exec("weather-report", command);
  await say("assistant", "The mean of three days is right. An empty list fails; I look into it.");
  for (const command of WORK.slice(3)) await server.exec("weather-report", command);
  const project = async (prefix: string, description: string, tags: string[]): Promise<string> =>
    (await server.call<{ project_id: string }>("POST", "/api/projects", { prefix, description, tags }))
      .project_id;
  const weather = await project("weather", "Forecasts from the station on the roof", ["python", "demo"]);
  await server.thread("roof-sensor", { project_id: weather });
  await server.exec(
    "roof-sensor",
    'mkdir -p data tests; touch README.md; printf \'"""Statistics of the station."""\\n\\ndef mean(values):\\n    return sum(values) / len(values)\\n\' > weather.py',
  );
  await server.exec("roof-sensor", "git log --oneline | head -3");
  const billing = await project("billing-api", "Invoices, reminders and what became of them", [
    "go",
    "production",
  ]);
  await server.call("POST", `/api/projects/${billing}/pin`);
  await server.thread("invoice-layout", { project_id: billing });
  await server.exec("invoice-layout", "go test ./...");
  await project("notes", "Where the agents keep what they learned", ["docs"]);
  await server.exec("nightly-build", "uname -sr");
  await server.exec("nightly-build", "make check");
  await server.exec("docs", "echo '# Weather' > /tmp/weather/README.md");
  await server.call("POST", "/api/threads/docs/pause");
  const { terminal_id } = await server.call<{ terminal_id: string }>(
    "GET",
    "/api/threads/invoice-layout/terminal",
  );
  await server.call("POST", `/api/terminals/${terminal_id}/handoffs`, {
    kind: "approval",
    reason: "The layout is ready and all tests pass. Deploy it?",
    options: ["to staging", "to production"],
  });
  await server.call("POST", "/api/threads/load-test/exec", {
    command: 'for i in $(seq 1 600); do echo "$i of 600 requests answered"; sleep 1; done',
    yield_ms: 100,
  });
});
afterAll(async () => {
  await browser?.close();
  await server.clear();
});

async function picture(page: Page, name: string): Promise<void> {
  await page.evaluate(() => document.fonts.ready);
  await page.screenshot({ path: join(FOLDER, `${name}.png`) });
}

test.each(["dark", "light"] as const)("the main views in %s", async (colorScheme) => {
  const { context, page } = await person(browser, server, { viewport: SIZE, colorScheme });
  const thread = threadPage(server, "weather-report");
  if (colorScheme === "dark") {
    await page.goto(thread);
    await connected(page);
    await type(page, "ls --color");
    await shows(page, /weather\.py\s+\S+ [#$]\s*$/);
    await picture(page, "thread");
    await page.goto(threadPage(server, "weather-report", "replay"));
    await page.getByLabel("Position").waitFor();
    await until(
      "a drawn screen",
      async () => (await page.locator(".player .xterm-rows").innerText()).trim() !== "",
    );
    await picture(page, "replay");
    await page.goto(`${server.url}/ui/metrics`);
    await until("charts", async () => (await page.locator(".chart").count()) > 4);
    await picture(page, "metrics");
    await page.goto(threadPage(server, "roof-sensor", "files?path=/workspace/weather.py"));
    await page.locator(".cm-content span").first().waitFor();
    await page.getByRole("button", { name: "Side panel" }).click();
    await picture(page, "files");
  } else {
    await page.goto(`${server.url}/ui/now`);
    await page.locator(".now-line", { hasText: "requests answered" }).waitFor();
    await page.locator(".toast").waitFor({ state: "detached" });
    await picture(page, "now");
    await page.goto(`${server.url}/ui/threads`);
    await page.getByRole("link", { name: "weather-report" }).first().waitFor();
    await picture(page, "threads");
    await page.goto(threadPage(server, "weather-report", "timeline"));
    const failed = page.locator(".entry.command", { hasText: "mean([])" });
    await failed.locator("summary").click();
    await failed.locator(".output pre").first().waitFor();
    await failed.scrollIntoViewIfNeeded();
    await picture(page, "timeline");
    await page.goto(threadPage(server, "weather-report", "versions"));
    await page.getByLabel("Compare from version 1").check();
    await page.locator(".comparison").getByText("STAGE").first().waitFor();
    await picture(page, "versions");
    await page.goto(`${server.url}/ui/leases`);
    await page.locator("table").waitFor();
    await picture(page, "leases");
    await page.goto(`${server.url}/ui/projects`);
    await page.locator(".project-card", { hasText: "weather" }).getByText("on disk").waitFor();
    await picture(page, "projects");
    await page.goto(thread);
    await connected(page);
    await page.getByRole("button", { name: "Share a read-only link" }).click();
    await page.getByLabel("Name").fill("Review by Ada");
    await page.getByRole("button", { name: "Create link" }).click();
    await page.locator(".shares").getByText("Review by Ada").waitFor();
    await page.locator(".toast").waitFor({ state: "detached" });
    await picture(page, "share");
  }
  await context.close();
});

test("a phone", async () => {
  const { context, page } = await person(browser, server, {
    viewport: { width: 390, height: 844 },
    deviceScaleFactor: 2,
    isMobile: true,
    hasTouch: true,
    colorScheme: "dark",
  });
  await page.goto(threadPage(server, "weather-report"));
  await connected(page);
  await page.getByRole("button", { name: "Side panel" }).click();
  await showStatus(page);
  await page.locator(".panel").getByText("Expires in").waitFor();
  await picture(page, "phone");
  await context.close();
});
