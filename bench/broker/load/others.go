package main

import (
	"strings"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Connections, each with one record in flight. `connect` makes one; what it returns adds a record.
func inTurn(connections, seconds int, connect func(number int) func() error) any {
	var took times
	var done sync.WaitGroup
	adds := make([]func() error, connections)
	for number := range adds {
		adds[number] = connect(number)
	}
	first, firsts := 0, sync.Mutex{}
	begin := time.Now().Add(warmUp)
	end := begin.Add(time.Duration(seconds) * time.Second)
	for _, add := range adds {
		done.Add(1)
		go func() {
			defer done.Done()
			mine, early := []int64{}, 0
			for sent := time.Now(); sent.Before(end); sent = time.Now() {
				must(add())
				if sent.Before(begin) {
					early++
				} else {
					mine = append(mine, int64(time.Since(sent)))
				}
			}
			took.add(mine)
			firsts.Lock()
			first += early
			firsts.Unlock()
		}()
	}
	done.Wait()
	return with(took.summary(), map[string]float64{
		"records_per_s": float64(len(took.all)) / float64(seconds), "first_second": float64(first),
	})
}

// Messages to a stream of JetStream with so many replicas.
func natsAdd(address, name string, connections, seconds, bytes, replicas int) any {
	servers, value := "nats://"+strings.ReplaceAll(address, ",", ",nats://"), make([]byte, bytes)
	client := func() jetstream.JetStream {
		connection, err := nats.Connect(servers, nats.DontRandomize())
		must(err)
		stream, err := jetstream.New(connection)
		must(err)
		return stream
	}
	config := jetstream.StreamConfig{Name: name, Subjects: []string{name}, Replicas: replicas, Storage: jetstream.FileStorage}
	_, err := client().CreateStream(background, config)
	must(err)
	found := inTurn(connections, seconds, func(int) func() error {
		stream := client()
		return func() error {
			_, err := stream.Publish(background, name, value)
			return err
		}
	})
	must(client().DeleteStream(background, name))
	return found
}

// Puts of one key for each client.
func etcdPut(address, prefix string, connections, seconds, bytes int) any {
	value := strings.Repeat("x", bytes)
	return inTurn(connections, seconds, func(number int) func() error {
		client, err := clientv3.New(clientv3.Config{Endpoints: strings.Split(address, ","), DialTimeout: 10 * time.Second})
		must(err)
		key := prefix + "/" + string(rune('A'+number/26)) + string(rune('A'+number%26))
		return func() error {
			_, err := client.Put(background, key, value)
			return err
		}
	})
}
