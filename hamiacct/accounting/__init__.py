"""What is right: the pure rules of GPU accounting. Standard library only (numpy in `fleet`)."""
