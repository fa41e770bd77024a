"""Passes frames between two network devices, each a time after it came.

    python3 relay.py DEVICE DEVICE MILLISECONDS"""
import collections, select, socket, sys, time

EVERYTHING, OUTGOING = 0x0003, 4
QUEUED_MAX = 100_000


def main():
    delay = int(sys.argv[3]) / 1000
    ends = []
    for device in sys.argv[1:3]:
        end = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(EVERYTHING))
        end.bind((device, EVERYTHING))
        end.setblocking(False)
        ends.append(end)
    queue = collections.deque()
    while True:
        wait = max(0, queue[0][0] - time.monotonic()) if queue else None
        for end in select.select(ends, [], [], wait)[0]:
            try:
                frame, source = end.recvfrom(65536)
            except OSError:
                return
            if source[2] != OUTGOING and len(queue) < QUEUED_MAX:
                queue.append((time.monotonic() + delay, ends[1] if end is ends[0] else ends[0], frame))
        while queue and queue[0][0] <= time.monotonic():
            _, end, frame = queue.popleft()
            try:
                end.send(frame)
            except OSError:
                return


main()
