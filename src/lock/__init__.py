"""What an accepted decision changes on the serving host: a start script, an image fragment, and how to undo it."""
