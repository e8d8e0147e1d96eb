import { expect, test } from "vitest";
import { person, stage, until } from "./harness.ts";

const scene = stage();
const { server } = scene;

test("a text in the output of any thread is found with the keyboard, and links to its command", async () => {
  await server.exec("first", "echo the needle; seq 1 300");
  await server.exec("second", "echo nothing");
  const { context, page } = await person(scene.browser, server);
  await page.keyboard.press("Control+k");
  await page.keyboard.type("The Needle");
  await page.getByRole("option", { name: /Search commands and output for/ }).waitFor();
  await page.keyboard.press("Enter");
  await page.waitForURL("**/ui/search?q=The+Needle");
  await page.getByText("1 matching command in 2 commands and their output.").waitFor();
  expect(await page.locator(".result mark").allInnerTexts()).toEqual(["the needle", "the needle"]);
  // The text of the field is searched, too, and becomes part of the URL.
  const field = page.getByRole("searchbox", { name: "Search commands and output of all threads" });
  await field.fill("nowhere");
  await page.getByText("No matches in 2 commands and their output.").waitFor();
  await field.fill("needle");
  await page.waitForURL("**/ui/search?q=needle");
  await page.locator(".result a").click();
  await page.waitForURL("**/ui/threads/first/timeline?command=*");
  const entry = page.locator(".entry.command.wanted");
  await until("the output", async () => (await entry.locator("pre").innerText()).startsWith("the needle\n"));
  await context.close();
});
