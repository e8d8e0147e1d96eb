"""What terminals cost: stead, tmux and a node server with xterm, measured side by side."""
