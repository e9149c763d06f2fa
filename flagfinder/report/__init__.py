"""What people read: one module per thing that is shown, and the terminal they share."""
