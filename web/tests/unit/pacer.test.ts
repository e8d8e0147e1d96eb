import { expect, test } from "vitest";
import { FRAME_BUDGET_MS, Pacer, type Work } from "../../src/terminal/pacer.ts";

test("work is done in order, one item at a time, within its share of each frame", async () => {
  let clock = 0;
  let frame = 0;
  const log: string[] = [];
  const pacer = new Pacer({
    now: () => clock,
    next: async () => {
      frame += 1;
      clock = frame * 100;
    },
  });
  let under = 0;
  const work =
    (name: string): Work =>
    (done) => {
      under += 1;
      expect(under).toBe(1);
      setImmediate(() => {
        clock += FRAME_BUDGET_MS / 2;
        under -= 1;
        log.push(`${name}@${frame}`);
        done();
      });
    };
  const all = new Promise<void>((resolve) => {
    for (const name of ["a", "b", "c", "d"]) pacer.pace(work(name));
    pacer.pace((done) => {
      done();
      resolve();
    });
  });
  await all;
  expect(log).toEqual(["a@1", "b@1", "c@2", "d@2"]);
});
