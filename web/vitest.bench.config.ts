import { defineConfig } from "vitest/config";

export default defineConfig({
  test: {
    include: ["tests/bench/*.ts"],
    environment: "node",
    testTimeout: 600_000,
    hookTimeout: 60_000,
    // One measurement at a time.
    fileParallelism: false,
  },
});
