"""What leaves the tracker by itself: reports by mail, events by webhook; queued, sent, tried again.

Edge. The sidecar holds only `errands`: making and sending are done by child processes.
"""
