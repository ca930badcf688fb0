"""What leaves the store in other formats: its history as samples, its tables as files.

Edge. Nothing is computed here: rows and samples come from the core.
"""
