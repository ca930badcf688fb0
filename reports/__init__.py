"""Documents made from finished numbers. All rounding happens here."""
