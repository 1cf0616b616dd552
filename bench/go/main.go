// One trial of a log written in Go, as the harness starts it: a task in JSON as the only argument, an
// answer in JSON in the file that it names. The fields are those of ../src/task.rs.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
	"golang.org/x/sys/unix"
)

// Where nothing is synced, a clock costs as much as an append: it is read for one in so many.
const sampled = 16
const poolBytes = 1 << 20

type cell struct {
	Kind        string `json:"kind"`
	Level       string `json:"level"`
	RecordBytes int    `json:"record_bytes"`
	Appenders   int    `json:"appenders"`
}

type task struct {
	Arm      string  `json:"arm"`
	Cell     cell    `json:"cell"`
	Dir      string  `json:"dir"`
	Answer   string  `json:"answer"`
	Seconds  float64 `json:"seconds"`
	Rate     int64   `json:"rate"`
	BytesMax int64   `json:"bytes_max"`
}

type times struct {
	N    int64 `json:"n"`
	P50  int64 `json:"p50"`
	P99  int64 `json:"p99"`
	P999 int64 `json:"p999"`
	Max  int64 `json:"max"`
}

type answer struct {
	Records        int64    `json:"records"`
	Seconds        float64  `json:"seconds"`
	SettledSeconds float64  `json:"settled_seconds"`
	Append         times    `json:"append"`
	FromDue        *times   `json:"from_due,omitempty"`
	ColdSeconds    *float64 `json:"cold_seconds,omitempty"`
	WarmSeconds    *float64 `json:"warm_seconds,omitempty"`
	PeakKib        int64    `json:"peak_kib"`
}

// A log, open.
type engine interface {
	// On return the record is as far as the level that the engine was opened at.
	append(record []byte) error
	// Makes everything durable that was appended before.
	sync() error
	// Reads every record; returns how many, and their bytes.
	read() (int64, int64, error)
	close() error
}

func open(arm, dir, level string, appenders int) (engine, error) {
	durable := level == "durable"
	switch arm {
	case "pebble":
		return openPebble(dir, durable)
	case "raft-wal":
		return openRaftWal(dir, appenders)
	case "etcd":
		return openEtcd(dir, durable, appenders)
	}
	return nil, fmt.Errorf("there is no arm %s in this program", arm)
}

func main() {
	if len(os.Args) != 2 {
		fail(fmt.Errorf("one argument is wanted: the task"))
	}
	var t task
	check(json.Unmarshal([]byte(os.Args[1]), &t))
	var a answer
	var err error
	switch t.Cell.Kind {
	case "append":
		a, err = appendAll(t)
	case "paced":
		a, err = paced(t)
	case "replay":
		a, err = replay(t)
	default:
		err = fmt.Errorf("what is a %s?", t.Cell.Kind)
	}
	check(err)
	a.PeakKib = peakKib()
	text, err := json.Marshal(a)
	check(err)
	check(os.WriteFile(t.Answer, text, 0o644))
}

func check(err error) {
	if err != nil {
		fail(err)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, "error:", err)
	os.Exit(2)
}

// Records that do not compress and are not all the same, at no cost: pieces of random bytes that all
// appenders share.
type records struct {
	pool  []byte
	bytes int
	at    int
}

func randomPool(bytes int) []byte {
	random := rand.NewPCG(1, 1)
	pool := make([]byte, poolBytes+bytes+8)
	for i := 0; i+8 <= len(pool); i += 8 {
		n := random.Uint64()
		for j := range 8 {
			pool[i+j] = byte(n >> (8 * j))
		}
	}
	return pool
}

func (r *records) next() []byte {
	r.at = (r.at + 64) % poolBytes
	return r.pool[r.at : r.at+r.bytes]
}

func appendAll(t task) (answer, error) {
	e, err := open(t.Arm, t.Dir, t.Cell.Level, t.Cell.Appenders)
	if err != nil {
		return answer{}, err
	}
	every := sampled
	if t.Cell.Level == "durable" {
		every = 1
	}
	begun := time.Now()
	var n int64
	var took *hdrhistogram.Histogram
	err = besideSyncs(e, t, func() (err error) {
		n, took, err = closedLoop(e, t, t.Cell.Appenders, every)
		return err
	})
	if err != nil {
		return answer{}, err
	}
	a := answer{Records: n, Seconds: time.Since(begun).Seconds(), Append: quantiles(took)}
	a.SettledSeconds = a.Seconds
	if t.Cell.Level == "interval" {
		if err := e.sync(); err != nil {
			return answer{}, err
		}
		a.SettledSeconds = time.Since(begun).Seconds()
	}
	return a, nil
}

// Appends of all goroutines until the time or the bytes are used up.
func closedLoop(e engine, t task, appenders, every int) (int64, *hdrhistogram.Histogram, error) {
	most := t.BytesMax / int64(appenders*t.Cell.RecordBytes)
	limit := time.Duration(t.Seconds * 1e9)
	var all sync.WaitGroup
	var start sync.WaitGroup
	start.Add(1)
	took := make([]*hdrhistogram.Histogram, appenders)
	counts := make([]int64, appenders)
	errs := make([]error, appenders)
	pool := randomPool(t.Cell.RecordBytes)
	for i := range appenders {
		took[i] = histogram()
		all.Add(1)
		go func() {
			defer all.Done()
			rs := &records{pool: pool, bytes: t.Cell.RecordBytes, at: i * 4096}
			start.Wait()
			begun := time.Now()
			for counts[i] < most {
				from := time.Now()
				if errs[i] = e.append(rs.next()); errs[i] != nil {
					return
				}
				end := time.Now()
				took[i].RecordValue(int64(end.Sub(from)))
				counts[i]++
				if end.Sub(begun) >= limit {
					return
				}
				for range every - 1 {
					if errs[i] = e.append(rs.next()); errs[i] != nil {
						return
					}
					counts[i]++
				}
			}
		}()
	}
	start.Done()
	all.Wait()
	sum, n := histogram(), int64(0)
	for i := range appenders {
		if errs[i] != nil {
			return 0, nil, errs[i]
		}
		sum.Merge(took[i])
		n += counts[i]
	}
	return n, sum, nil
}

// One appender at a rate, waiting for its time in a loop, so that a sleep does not blur the start.
func paced(t task) (answer, error) {
	e, err := open(t.Arm, t.Dir, t.Cell.Level, 1)
	if err != nil {
		return answer{}, err
	}
	rs := &records{pool: randomPool(t.Cell.RecordBytes), bytes: t.Cell.RecordBytes}
	took, fromDue := histogram(), histogram()
	gap := time.Duration(1_000_000_000 / t.Rate)
	limit := time.Duration(t.Seconds * 1e9)
	begun := time.Now()
	err = besideSyncs(e, t, func() error {
		// Who cannot keep the pace gets twice the time.
		for due := begun; due.Sub(begun) < limit && time.Since(begun) < 2*limit; due = due.Add(gap) {
			from := time.Now()
			for from.Before(due) {
				from = time.Now()
			}
			if err := e.append(rs.next()); err != nil {
				return err
			}
			end := time.Now()
			took.RecordValue(int64(end.Sub(from)))
			fromDue.RecordValue(int64(end.Sub(due)))
		}
		return nil
	})
	if err != nil {
		return answer{}, err
	}
	seconds := time.Since(begun).Seconds()
	due := quantiles(fromDue)
	return answer{Records: took.TotalCount(), Seconds: seconds, SettledSeconds: seconds,
		Append: quantiles(took), FromDue: &due}, nil
}

func replay(t task) (answer, error) {
	level, appenders := "buffered", 1
	if t.Arm == "raft-wal" { // knows no other
		level, appenders = "durable", 64
	}
	e, err := open(t.Arm, t.Dir, level, appenders)
	if err != nil {
		return answer{}, err
	}
	begun := time.Now()
	appended, _, err := closedLoop(e, t, appenders, sampled)
	if err != nil {
		return answer{}, err
	}
	if err := e.sync(); err != nil {
		return answer{}, err
	}
	seconds := time.Since(begun).Seconds()
	if err := e.close(); err != nil {
		return answer{}, err
	}
	read := func() (*float64, error) {
		begun := time.Now()
		e, err := open(t.Arm, t.Dir, "buffered", 1)
		if err != nil {
			return nil, err
		}
		n, bytes, err := e.read()
		if err != nil {
			return nil, err
		}
		seconds := time.Since(begun).Seconds()
		if n != appended || bytes != appended*int64(t.Cell.RecordBytes) {
			return nil, fmt.Errorf("%d records were appended and %d (%d B) read", appended, n, bytes)
		}
		return &seconds, e.close()
	}
	if err := forgetPages(t.Dir); err != nil {
		return answer{}, err
	}
	a := answer{Records: appended, Seconds: seconds}
	if a.ColdSeconds, err = read(); err != nil {
		return a, err
	}
	a.WarmSeconds, err = read()
	return a, err
}

// Runs work while a goroutine syncs each second, if that is wanted.
func besideSyncs(e engine, t task, work func() error) error {
	if t.Cell.Level != "interval" {
		return work()
	}
	var over atomic.Bool
	synced := make(chan error, 1)
	go func() {
		next := time.Now().Add(time.Second)
		for !over.Load() {
			if !time.Now().Before(next) {
				if err := e.sync(); err != nil {
					synced <- err
					return
				}
				next = next.Add(time.Second)
			}
			time.Sleep(5 * time.Millisecond)
		}
		synced <- nil
	}()
	err := work()
	over.Store(true)
	if failed := <-synced; failed != nil {
		return failed
	}
	return err
}

// Drops the pages of all files in the directory, which must be durable.
func forgetPages(dir string) error {
	return filepath.Walk(dir, func(path string, info os.FileInfo, err error) error {
		if err != nil || !info.Mode().IsRegular() {
			return err
		}
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		defer f.Close()
		if err := f.Sync(); err != nil {
			return err
		}
		return unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED)
	})
}

// The most memory that the process ever had.
func peakKib() int64 {
	f, err := os.Open("/proc/self/status")
	if err != nil {
		return 0
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if rest, found := strings.CutPrefix(lines.Text(), "VmHWM:"); found {
			n, _ := strconv.ParseInt(strings.TrimSpace(strings.TrimSuffix(rest, " kB")), 10, 64)
			return n
		}
	}
	return 0
}

func histogram() *hdrhistogram.Histogram {
	return hdrhistogram.New(1, 600_000_000_000, 3)
}

func quantiles(h *hdrhistogram.Histogram) times {
	return times{N: h.TotalCount(), P50: h.ValueAtQuantile(50), P99: h.ValueAtQuantile(99),
		P999: h.ValueAtQuantile(99.9), Max: h.Max()}
}
