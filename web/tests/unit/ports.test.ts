import { expect, test } from "vitest";
import { listeningPorts, previewAddress } from "../../src/lib/ports.ts";

test("listening ports are read from the kernel's tables, each once and in order", () => {
  const tables = [
    "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode",
    "   0: 00000000:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1 1 0 100",
    "   1: 0100007F:0BB8 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1 1 0 100",
    "   2: 0100007F:1F90 0100007F:E4DE 06 00000000:00000000 03:0000176D 00000000     0        0 0 3 0",
    "   3: 0100007F:1538 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 1 1 0 100",
    "   0: 00000000000000000000000000000000:1F90 00000000000000000000000000000000:0000 0A 0:0 0:0 0 0 0 1",
    "   1: 00000000000000000000000000000000:1538 00000000000000000000000000000000:0000 0A 0:0 0:0 0 0 0 1",
    "nonsense",
    "",
  ].join("\n");
  expect(listeningPorts(tables)).toEqual([
    { port: 3000, loopbackOnly: true },
    { port: 5432, loopbackOnly: false },
    { port: 8080, loopbackOnly: false },
  ]);
  expect(listeningPorts("")).toEqual([]);
});

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
