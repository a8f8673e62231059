"""The command `probml`: tables and files in, tables and files out. Needs click: probml[cli]."""
