package main

import (
	"runtime"
	"strconv"
	"syscall"
	"time"
)

// The largest packet of a TUN device.
const packetBytes = 1 << 16

type packet struct {
	bytes []byte
	due   time.Time
}

// Carries IPv4 packets between TUN devices, each so much later than it came; the device of address
// a.b.c.D is the one that is the file `fileOf[D]`. A thread for each way in and each way out: a timer of this language's
// runtime is a millisecond late, a sleeping thread 50 µs at most.
func relay(delay time.Duration, fileOf map[byte]int) {
	queues := map[byte]chan packet{}
	for last, file := range fileOf {
		queues[last] = make(chan packet, 1<<14)
		go deliver(file, queues[last])
	}
	for _, file := range fileOf {
		go func() {
			runtime.LockOSThread()
			for {
				bytes := make([]byte, packetBytes)
				n, err := syscall.Read(file, bytes)
				if err == syscall.EINTR {
					continue
				}
				must(err)
				// IPv4 only, and only to where somebody is.
				if n < 20 || bytes[0]>>4 != 4 {
					continue
				}
				if queue, is := queues[bytes[19]]; is {
					queue <- packet{append([]byte{}, bytes[:n]...), time.Now().Add(delay)}
				}
			}
		}()
	}
	select {}
}

func deliver(file int, queue chan packet) {
	runtime.LockOSThread()
	for next := range queue {
		if early := time.Until(next.due); early > 0 {
			rest := syscall.NsecToTimespec(int64(early))
			syscall.Nanosleep(&rest, nil)
		}
		syscall.Write(file, next.bytes)
	}
}

// Of the arguments D=FILE.
func filesOf(pairs []string) map[byte]int {
	files := map[byte]int{}
	for _, pair := range pairs {
		for at := range pair {
			if pair[at] == '=' {
				last, err := strconv.Atoi(pair[:at])
				must(err)
				file, err := strconv.Atoi(pair[at+1:])
				must(err)
				files[byte(last)] = file
			}
		}
	}
	return files
}
