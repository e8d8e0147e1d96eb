import { expect, test } from "vitest";
import { previewAddress } from "../../src/lib/ports.ts";

test("a port of a sandbox is seen under a name of its own, where the server has one", () => {
  const sandbox = { sandbox_id: "i1b9", origin: "e2b" };
  const check = (address: string, expected: string | null): void =>
    expect(previewAddress(new URL(address), sandbox, 8000), address).toBe(expected);
  check("http://127.0.0.1:7832/ui", "http://8000-i1b9.localhost:7832/");
  check("http://localhost:7832/ui", "http://8000-i1b9.localhost:7832/");
  check("http://[::1]:7832/ui", "http://8000-i1b9.localhost:7832/");
  check("https://stead.example.org/ui", "https://8000-i1b9.stead.example.org/");
  check("https://192.0.2.7/ui", null);
  check("https://[2001:db8::1]/ui", null);
  expect(previewAddress(new URL("http://localhost/"), { ...sandbox, origin: "stead" }, 1)).toBe(null);
  expect(previewAddress(new URL("http://localhost/"), null, 1)).toBe(null);
});
