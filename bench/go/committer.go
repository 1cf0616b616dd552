package main

// The most records that one commit takes: what hashicorp/raft takes from its queue.
const batchMax = 64

// Gathers records that wait and commits them together, as raft does above a log with one writer.
type committer struct {
	queue  chan waiting
	commit func(records [][]byte) error
}

type waiting struct {
	record []byte
	done   chan error
}

func newCommitter(commit func(records [][]byte) error) *committer {
	c := &committer{queue: make(chan waiting, batchMax), commit: commit}
	go c.run()
	return c
}

func (c *committer) run() {
	for first := range c.queue {
		batch := []waiting{first}
		records := [][]byte{first.record}
	gather:
		for len(batch) < batchMax {
			select {
			case w := <-c.queue:
				batch = append(batch, w)
				records = append(records, w.record)
			default:
				break gather
			}
		}
		err := c.commit(records)
		for _, w := range batch {
			w.done <- err
		}
	}
}

func (c *committer) append(record []byte) error {
	w := waiting{record: record, done: make(chan error, 1)}
	c.queue <- w
	return <-w.done
}
