"""What eager checks of arguments before its kernels run, in its words."""
