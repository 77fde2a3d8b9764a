"""From the numbers of an evaluation to what people read: pages, tables, figures, files."""
