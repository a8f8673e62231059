"""Users' tables: units, kinds of columns, rows without a label."""
