"""Which offers are taken, and when: what each is worth, and what a broken cache costs."""
