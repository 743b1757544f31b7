"""What a rule's requests and announcements mean, written once: every engine runs rules through this package."""
