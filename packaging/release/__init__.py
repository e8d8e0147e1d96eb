"""What `packaging/dist` builds: one module per kind of artefact."""
