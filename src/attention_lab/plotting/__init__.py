"""Numbers become figures; nothing here knows where they come from."""
