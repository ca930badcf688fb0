"""What is pure: values in, values out. No I/O, no clock. See ARCHITECTURE.md."""
