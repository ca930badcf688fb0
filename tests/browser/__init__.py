"""The status page in a real browser, on a real sidecar."""
