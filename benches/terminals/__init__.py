"""Resources and latencies of terminals: Stead, tmux and a Node server with xterm, measured side by side."""
