import assert from "node:assert/strict";
import { ConflictError, EchoOnError, InvalidRequestError, NotWaitingError } from "../dist/index.js";
import { test, until, withServer } from "./harness.js";

const setup = withServer();

test("a person answers, and the agent gets the answer", async () => {
  const thread = setup.thread();
  const { terminalId } = await thread.exec("true");
  const { handoffs } = setup.client;
  const question = {
    kind: "approval",
    reason: "Deploy?",
    options: ["now", "later"],
    timeoutMs: 600_000,
  } as const;
  const asked = await handoffs.ask(terminalId, { ...question, options: [...question.options] });
  assert.equal(asked.status, "open");
  assert.equal((await handoffs.wait(asked.handoffId, { timeoutMs: 10 })).status, "open");
  const open = await handoffs.list({ status: "open", terminalId });
  assert.deepEqual(open.items, [asked]);
  await assert.rejects(handoffs.answer(asked.handoffId, { option: "never" }), InvalidRequestError);
  const waiting = handoffs.wait(asked.handoffId);
  await handoffs.answer(asked.handoffId, { option: "later", text: "after lunch" });
  const answered = await waiting;
  assert.equal(answered.status, "answered");
  assert.deepEqual(answered.answer, { approve: true, option: "later", text: "after lunch" });
  assert.deepEqual(await handoffs.get(asked.handoffId), answered);
  await assert.rejects(handoffs.decline(asked.handoffId), ConflictError);

  const other = await handoffs.ask(terminalId, { kind: "input", reason: "Which branch?" });
  const declined = await handoffs.decline(other.handoffId, { text: "ask later" });
  assert.deepEqual([declined.status, declined.answer], ["declined", { text: "ask later" }]);
});

test("a secret is refused where the terminal would show it", async () => {
  const { terminalId } = await setup.thread().exec("true");
  const { handoffs } = setup.client;
  const asked = await handoffs.ask(terminalId, { kind: "secret", reason: "The password" });
  // Until the shell is at its prompt again, nothing waits for input.
  const refused = await until("the prompt", async () => {
    const error: unknown = await handoffs
      .answer(asked.handoffId, { secret: "hunter2" })
      .catch((error: unknown) => error);
    return error instanceof NotWaitingError ? undefined : error;
  });
  assert.ok(refused instanceof EchoOnError, String(refused));
  assert.ok(!refused.message.includes("hunter2"));
  assert.equal((await handoffs.get(asked.handoffId)).status, "open");
});
