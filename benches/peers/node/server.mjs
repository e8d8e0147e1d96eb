// The usual web terminal: node-pty for the shell, a headless xterm for the picture, ws for the viewers.
// Picture and subscription happen in one step, which most servers of this kind get wrong.
import { createServer } from "node:http";
import pty from "@lydell/node-pty";
import serialize from "@xterm/addon-serialize";
import xterm from "@xterm/headless";
import { WebSocketServer } from "ws";

const terminals = new Map();
let last = 0;

function create({ cmd, cols, rows }) {
  const id = String((last += 1));
  const screen = new xterm.Terminal({ cols, rows, scrollback: 5000, allowProposedApi: true });
  const serializer = new serialize.SerializeAddon();
  screen.loadAddon(serializer);
  const child = pty.spawn(cmd[0], cmd.slice(1), { cols, rows, cwd: "/", env: process.env, name: "xterm-256color" });
  const terminal = { screen, serializer, child, viewers: new Set() };
  child.onData((data) => {
    screen.write(data);
    for (const viewer of terminal.viewers) {
      if (viewer.waiting) viewer.waiting.push(data);
      else viewer.socket.send(data);
    }
  });
  child.onExit(() => {
    for (const viewer of terminal.viewers) viewer.socket.close();
    screen.dispose();
    terminals.delete(id);
  });
  terminals.set(id, terminal);
  return id;
}

const server = createServer((request, response) => {
  const [, kind, id] = request.url.split("/");
  const answer = (status, body) => response.writeHead(status, { "Content-Type": "application/json" }).end(JSON.stringify(body));
  if (kind !== "pty") return answer(404, {});
  if (request.method === "DELETE") {
    terminals.get(id)?.child.kill("SIGKILL");
    return answer(200, {});
  }
  let body = "";
  request.on("data", (part) => (body += part));
  request.on("end", () => answer(201, { id: create(JSON.parse(body)) }));
});

const sockets = new WebSocketServer({ server, perMessageDeflate: false });
sockets.on("connection", (socket, request) => {
  const terminal = terminals.get(request.url.split("/")[2]);
  if (!terminal) return socket.close();
  // The empty write is called back when all before it is in the picture; what comes after it waits.
  const viewer = { socket, waiting: [] };
  terminal.viewers.add(viewer);
  terminal.screen.write("", () => {
    socket.send(terminal.serializer.serialize());
    for (const data of viewer.waiting) socket.send(data);
    viewer.waiting = null;
  });
  socket.on("message", (data) => terminal.child.write(data.toString()));
  socket.on("close", () => terminal.viewers.delete(viewer));
});

server.keepAliveTimeout = 0;
server.listen(0, "127.0.0.1", () => console.log(server.address().port));
