import { defineConfig } from "vitest/config";

export default defineConfig({
  test: {
    include: ["tests/shots/*.ts"],
    environment: "node",
    testTimeout: 120_000,
    hookTimeout: 60_000,
    // The recording takes place in real time.
    fileParallelism: false,
  },
});
