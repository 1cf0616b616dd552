package main

import (
	"path/filepath"

	"go.etcd.io/etcd/server/v3/storage/wal"
	"go.etcd.io/etcd/server/v3/storage/wal/walpb"
	"go.etcd.io/raft/v3/raftpb"
	"go.uber.org/zap"
)

// etcd's wal: one writer, a sync for each call that has entries.
type etcd struct {
	log       *wal.WAL
	next      uint64
	found     []raftpb.Entry
	committer *committer
}

func openEtcd(dir string, durable bool, appenders int) (engine, error) {
	dir = filepath.Join(dir, "wal")
	e := &etcd{next: 1}
	var err error
	if wal.Exist(dir) {
		if e.log, err = wal.Open(zap.NewNop(), dir, walpb.Snapshot{}); err != nil {
			return nil, err
		}
		if _, _, e.found, err = e.log.ReadAll(); err != nil {
			return nil, err
		}
		e.next += uint64(len(e.found))
	} else if e.log, err = wal.Create(zap.NewNop(), dir, nil); err != nil {
		return nil, err
	}
	if !durable {
		e.log.SetUnsafeNoFsync()
	}
	if appenders > 1 {
		e.committer = newCommitter(e.commit)
	}
	return e, nil
}

func (e *etcd) commit(records [][]byte) error {
	entries := make([]raftpb.Entry, len(records))
	for i, record := range records {
		entries[i] = raftpb.Entry{Term: 1, Index: e.next, Data: record}
		e.next++
	}
	return e.log.Save(raftpb.HardState{}, entries)
}

func (e *etcd) append(record []byte) error {
	if e.committer != nil {
		return e.committer.append(record)
	}
	return e.commit([][]byte{record})
}

func (e *etcd) sync() error { return e.log.Sync() }

// Opening has read everything.
func (e *etcd) read() (int64, int64, error) {
	var bytes int64
	for _, entry := range e.found {
		bytes += int64(len(entry.Data))
	}
	return int64(len(e.found)), bytes, nil
}

func (e *etcd) close() error { return e.log.Close() }
