package main

import (
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
	wal "github.com/hashicorp/raft-wal"
)

// hashicorp/raft-wal: one writer, a sync for each call.
type raftWal struct {
	log       *wal.WAL
	next      uint64
	committer *committer
}

func openRaftWal(dir string, appenders int) (engine, error) {
	log, err := wal.Open(dir, wal.WithLogger(hclog.NewNullLogger()))
	if err != nil {
		return nil, err
	}
	last, err := log.LastIndex()
	if err != nil {
		return nil, err
	}
	w := &raftWal{log: log, next: last + 1}
	if appenders > 1 {
		w.committer = newCommitter(w.commit)
	}
	return w, nil
}

func (w *raftWal) commit(records [][]byte) error {
	logs := make([]*raft.Log, len(records))
	for i, record := range records {
		logs[i] = &raft.Log{Index: w.next, Term: 1, Type: raft.LogCommand, Data: record, AppendedAt: time.Time{}}
		w.next++
	}
	return w.log.StoreLogs(logs)
}

func (w *raftWal) append(record []byte) error {
	if w.committer != nil {
		return w.committer.append(record)
	}
	return w.commit([][]byte{record})
}

func (w *raftWal) sync() error { return nil }

func (w *raftWal) read() (int64, int64, error) {
	first, err := w.log.FirstIndex()
	if err != nil {
		return 0, 0, err
	}
	var n, bytes int64
	var log raft.Log
	for i := first; i < w.next; i++ {
		if err := w.log.GetLog(i, &log); err != nil {
			return 0, 0, err
		}
		n++
		bytes += int64(len(log.Data))
	}
	return n, bytes, nil
}

func (w *raftWal) close() error { return w.log.Close() }
