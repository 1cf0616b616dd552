package main

import (
	"io"
	"os"
	"path/filepath"
	"sync"

	"github.com/cockroachdb/pebble/v2/record"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// Pebble's WAL writer: records are copied into blocks, one goroutine writes and syncs them.
type pebble struct {
	path    string
	durable bool
	// The writer wants its records one after the other; Pebble's commit pipeline has a mutex there.
	turn  sync.Mutex
	log   *record.LogWriter
	queue chan struct{}
}

const pebbleLogNumber = 1

// A file that exists is only read.
func openPebble(dir string, durable bool) (engine, error) {
	p := &pebble{path: filepath.Join(dir, "000001.log"), durable: durable,
		queue: make(chan struct{}, record.SyncConcurrency)}
	if _, err := os.Stat(p.path); err == nil {
		return p, nil
	}
	file, err := vfs.Default.Create(p.path, vfs.WriteCategoryUnspecified)
	if err != nil {
		return nil, err
	}
	file = vfs.NewSyncingFile(file, vfs.SyncingFileOptions{PreallocateSize: 4 << 20})
	p.log = record.NewLogWriter(file, pebbleLogNumber, record.LogWriterConfig{
		QueueSemChan:        p.queue,
		WriteWALSyncOffsets: func() bool { return true },
	})
	return p, nil
}

func (p *pebble) append(r []byte) error {
	if p.durable {
		return p.synced(r)
	}
	p.turn.Lock()
	defer p.turn.Unlock()
	_, err := p.log.WriteRecord(r)
	return err
}

func (p *pebble) synced(r []byte) error {
	var wait sync.WaitGroup
	var failed error
	wait.Add(1)
	p.queue <- struct{}{}
	p.turn.Lock()
	_, err := p.log.SyncRecord(r, &wait, &failed)
	p.turn.Unlock()
	if err != nil {
		return err
	}
	wait.Wait()
	return failed
}

// An empty record that is synced.
func (p *pebble) sync() error {
	return p.synced(nil)
}

func (p *pebble) read() (int64, int64, error) {
	file, err := os.Open(p.path)
	if err != nil {
		return 0, 0, err
	}
	defer file.Close()
	reader := record.NewReader(file, pebbleLogNumber)
	buffer := make([]byte, 0, 1<<16)
	var n, bytes int64
	for {
		r, err := reader.Next()
		if err == io.EOF {
			return n, bytes, nil
		} else if err != nil {
			return 0, 0, err
		}
		buffer, err = readInto(buffer[:0], r)
		if err != nil {
			return 0, 0, err
		}
		if len(buffer) > 0 {
			n++
			bytes += int64(len(buffer))
		}
	}
}

func readInto(buffer []byte, r io.Reader) ([]byte, error) {
	for {
		if len(buffer) == cap(buffer) {
			buffer = append(buffer, 0)[:len(buffer)]
		}
		n, err := r.Read(buffer[len(buffer):cap(buffer)])
		buffer = buffer[:len(buffer)+n]
		if err == io.EOF {
			return buffer, nil
		} else if err != nil {
			return nil, err
		}
	}
}

func (p *pebble) close() error {
	if p.log == nil {
		return nil
	}
	return p.log.Close()
}
