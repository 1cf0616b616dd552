// Commits to bbolt one by one, and says each number to the recorder once Update has returned; or opens what a
// power cut left, as an application would, and counts what was promised.
//
// Promised: "Each DB.Update() waits for disk to commit the writes."
// https://github.com/etcd-io/bbolt#batch-read-write-transactions
//
//	go build -C examples/bbolt -o bbolt .
//	plimsoll disk record -o trace/ -- examples/bbolt/bbolt workload {dir}
//	plimsoll disk explore trace/ --check 'examples/bbolt/bbolt check {dir}'
package main

import (
	"bufio"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"runtime/debug"
	"strconv"
	"time"

	"go.etcd.io/bbolt"
)

const rows = 60

var bucket = []byte("payments")

func main() {
	if len(os.Args) != 3 || (os.Args[1] != "workload" && os.Args[1] != "check") {
		fmt.Fprintln(os.Stderr, "usage: bbolt workload|check DIR")
		os.Exit(64)
	}
	path := filepath.Join(os.Args[2], "bank.db")
	if os.Args[1] == "workload" {
		workload(path)
		return
	}
	status, said := check(path)
	if said != "" {
		fmt.Println(said)
	}
	os.Exit(status)
}

func workload(path string) {
	recorder, err := net.Dial("unix", os.Getenv("PLIMSOLL_MARK_SOCKET"))
	must(err)
	answers := bufio.NewReader(recorder)
	db, err := bbolt.Open(path, 0o600, nil)
	must(err)
	for number := 1; number <= rows; number++ {
		must(db.Update(func(tx *bbolt.Tx) error {
			payments, err := tx.CreateBucketIfNotExists(bucket)
			if err != nil {
				return err
			}
			return payments.Put(key(number), make([]byte, 200))
		}))
		// What is marked is promised: somebody may be told now.
		_, err := fmt.Fprintln(recorder, number)
		must(err)
		answer, err := answers.ReadString('\n')
		must(err)
		if answer != "ok\n" {
			panic(answer)
		}
	}
}

// check returns an exit status and what to say.
func check(path string) (status int, said string) {
	// What is broken is found by walking it, which may end in a panic, or outside of the file.
	debug.SetPanicOnFault(true)
	defer func() {
		if trouble := recover(); trouble != nil {
			status, said = 3, fmt.Sprintf("it does not open: %v", trouble)
		}
	}()
	promised, _ := strconv.Atoi(os.Getenv("PLIMSOLL_LAST_MARK"))
	db, err := bbolt.Open(path, 0o600, &bbolt.Options{Timeout: time.Second})
	if err != nil {
		return 3, fmt.Sprintf("it does not open: %v", err)
	}
	err = db.View(func(tx *bbolt.Tx) error {
		for trouble := range tx.Check() {
			status, said = 1, fmt.Sprintf("wrong: %v", trouble)
		}
		there := 0
		if payments := tx.Bucket(bucket); payments != nil {
			cursor := payments.Cursor()
			for found, _ := cursor.First(); found != nil; found, _ = cursor.Next() {
				there++
				if string(found) != string(key(there)) {
					status, said = 1, fmt.Sprintf("wrong: %q where %q should be", found, key(there))
				}
			}
		}
		if status == 0 && there < promised {
			status, said = 1, fmt.Sprintf("%d rows were promised, %d are there", promised, there)
		}
		return nil
	})
	if err != nil {
		return 3, fmt.Sprintf("it does not open: %v", err)
	}
	return status, said
}

func key(number int) []byte { return []byte(fmt.Sprintf("%08d", number)) }

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(65)
	}
}
