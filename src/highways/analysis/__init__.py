"""Records -> tidy frame -> cells -> tables and figures. Only this package imports pandas and matplotlib."""
