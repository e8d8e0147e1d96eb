import { gzipSync } from "node:zlib";
import { defineConfig, type Plugin } from "vite";

/** Writes every text file of the build as NAME.gz; the server decompresses it for clients that do not accept gzip. */
function packed(): Plugin {
  return {
    name: "packed",
    apply: "build",
    generateBundle: {
      order: "post",
      handler(_options, bundle) {
        for (const [name, file] of Object.entries(bundle)) {
          if (!/\.(js|css|html|svg)$/.test(name)) continue;
          const source = file.type === "chunk" ? file.code : file.source;
          this.emitFile({ type: "asset", fileName: `${name}.gz`, source: gzipSync(source, { level: 9 }) });
          delete bundle[name];
        }
      },
    },
  };
}

export default defineConfig({
  base: "/",
  plugins: [packed()],
  build: {
    target: "es2023",
    // A data: address in a style sheet would need a wider policy.
    assetsInlineLimit: 0,
    modulePreload: { polyfill: false },
    reportCompressedSize: false,
    chunkSizeWarningLimit: 600,
  },
  server: {
    proxy: Object.fromEntries(
      ["/api", "/session", "/metrics", "/login", "/docs", "/openapi.json"].map((path) => [
        path,
        { target: process.env.STEAD_URL ?? "http://127.0.0.1:7832", ws: true },
      ]),
    ),
  },
});
