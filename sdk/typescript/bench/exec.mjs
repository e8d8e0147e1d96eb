// The cost of `exec("true")` with this SDK over a plain request with the same body. `npm run bench` starts a server.

import { Stead } from "../dist/index.js";
import { startServer } from "../test/server.mjs";

const ROUNDS = 2000;
const WARM_UP_ROUNDS = 200;

const server = await startServer();
try {
  const thread = new Stead(server).threads.open("bench");
  const url = `${server.url}/api/threads/bench/exec`;
  const plain = async (round) => {
    const headers = {
      authorization: `Bearer ${server.token}`,
      "content-type": "application/json",
      "idempotency-key": `bench-${round}`,
    };
    const body = JSON.stringify({ command: "true", stdin: "", yield_ms: 10_000 });
    const response = await fetch(url, { method: "POST", headers, body });
    return response.json();
  };
  const time = async (act) => {
    const began = performance.now();
    await act();
    return performance.now() - began;
  };
  const times = [];
  for (let round = 0; round < WARM_UP_ROUNDS + ROUNDS; round++) {
    // In turns and in changing order, so that both see the same machine.
    const acts = { raw: () => plain(round), sdk: () => thread.exec("true") };
    const row = {};
    for (const name of round % 2 ? ["raw", "sdk"] : ["sdk", "raw"]) row[name] = await time(acts[name]);
    if (round >= WARM_UP_ROUNDS) times.push({ ...row, overhead: row.sdk - row.raw });
  }
  const median = (name) =>
    times
      .map((row) => row[name])
      .sort((a, b) => a - b)
      [times.length >> 1].toFixed(3);
  console.log(`exec("true") p50: SDK ${median("sdk")} ms, plain request ${median("raw")} ms`);
  console.log(`overhead of the TypeScript SDK p50: ${median("overhead")} ms (target 0.3 ms)`);
} finally {
  await server.close();
}
