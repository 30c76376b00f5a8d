"""Records as frames and cells: what tables, figures and claims are made from."""
